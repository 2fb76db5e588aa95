// What happens to a model once its gradients are complete: clipping, the decision whether the step counts, and the
// optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/optimizer_options.h"
#include "lockstep/model/parameters.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model {

/// The arrays that an update reads and writes, in the memory of the model's device; all flat.
struct UpdateArrays {
  std::span<float> parameters;             ///< to be updated
  std::span<const float> gradients;        ///< of the same layout; reduced over all replicas
  TensorView weights;                      ///< the parameters' copy of 16 bits, written too; none for float32
  std::span<float> statistics;             ///< moving statistics
  std::span<const float> kept_statistics;  ///< what they were before the step, put back where it does not count
};

/// The numbers of one update.
struct UpdateRequest {
  float learning_rate = 0;  ///< of this update
  std::int64_t update = 1;  ///< counted from 1; enters bias correction
  double clip_norm = 0;     ///< largest norm of the gradient; 0 for no clipping
  float loss_scale = 1;     ///< what the gradients were multiplied by
};

/// What became of an update.
struct UpdateOutcome {
  bool applied = true;       ///< false: parameters, slots and moving statistics are as before the step
  double gradient_norm = 0;  ///< before clipping, without the loss scale; 0 where nothing is clipped
};

/// The optimizer of one replica, and what decides about its updates: functions of the reduced gradient and report
/// alone, so that all replicas come to the same. Its slots lie in the memory of the model's device.
class Updater {
 public:
  virtual ~Updater() = default;

  /// Takes the numbers of the next update; not part of what may be recorded and repeated.
  virtual void begin(const UpdateRequest& request) = 0;
  /// Enqueues the update on the model's stream. `summable` is the sum over all replicas of SummableMetrics. The step
  /// does not count where their loss, or an element of the gradient, is not finite; in every precision.
  virtual void update(std::span<const float> summable) = 0;
  /// What became of the last update; waits for it.
  virtual UpdateOutcome outcome() = 0;

  /// Of the optimizer, in a fixed order: what checkpoints keep.
  const std::vector<std::string>& slot_names() const { return slot_names_; }
  /// A slot as a flat array in the layout of the parameters, on the model's device. Throws Error (checkpoint) for an
  /// unknown name.
  std::span<float> slot(std::string_view name);

 protected:
  /// Of the optimizer that `options` describe.
  explicit Updater(const OptimizerOptions& options) : slot_names_(model::slot_names(options)), options_(options) {}
  /// The slot of that number in slot_names(), flat, on the model's device.
  virtual std::span<float> slot(std::size_t index) = 0;

  const OptimizerOptions& options() const { return options_; }  ///< as it was made

 private:
  std::vector<std::string> slot_names_;
  OptimizerOptions options_;
};

}  // namespace lockstep::model
