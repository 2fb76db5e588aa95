// Validation images with the predictions of the network.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/options/fit_options.h"

namespace lockstep::inline v0::train {

/// Maximum of FitOptions::prediction_images, which form one picture and one batch.
inline constexpr std::int64_t kMaxPredictionImages = 1000;

/// Throws Error (input) unless FitOptions::prediction_images is 0, or up to kMaxPredictionImages
/// with validation data of images [H, W, 1 or 3] that the first loss compares with one class each.
void check_prediction_images(const FitOptions& fit, const model::Network& network,
                             const model::TotalLoss& loss);

/// The first FitOptions::prediction_images images of the validation data, which are read once, and
/// the classes that the network predicts. Use only on the chief.
class PredictionImages {
 public:
  /// Both must outlive this object.
  PredictionImages(strategy::LocalReplicas& replicas, const FitOptions& fit)
      : replicas_(replicas), count_(fit.prediction_images) {}

  bool is_on() const { return count_ > 0; }  ///< whether there are images

  /// The predictions of the first local replica with its current parameters and statistics, after
  /// `step` completed steps. `validation`: FitPlan::validation. Valid until the next call. Throws
  /// Error (data). Not collective.
  ImagePredictions predict(const data::Dataset& validation, std::int64_t step);

 private:
  void read(const data::Dataset& validation);

  strategy::LocalReplicas& replicas_;
  std::int64_t count_;
  data::Batch batch_;       // the images; empty before the first call
  std::size_t target_ = 0;  // index of the target of the first loss in the batch
  std::vector<data::Image> images_;
  std::vector<ImagePrediction> predictions_;
};

}  // namespace lockstep::inline v0::train
