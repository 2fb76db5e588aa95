// The updates of a replica in rounds of local steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/optimizer/updater.h"
#include "lockstep/strategy/step/local_steps.h"

namespace lockstep::inline v0::strategy {

/// The optimizer of one replica, applied to its own gradient after each local step, and the outer
/// step that ends a round. A round is: begin(), begin_round(), a gradient and take_local_step() for
/// each local step, end_local_steps(), the sum of the gradients over all replicas, update().
///
/// The slots are those of the optimizer, averaged like the parameters, and kOuterMomentumSlot if
/// the outer step has momentum. So after each round all replicas are the same, and a checkpoint is
/// as complete as that of another strategy. Averaging reads parameters and slots in host memory.
class LocalUpdater final : public model::Updater {
 public:
  /// Updates `model`, which must outlive it. `arrays`: as for Backend::updater(). `sum` adds an
  /// array over all replicas.
  LocalUpdater(const model::OptimizerOptions& options, const LocalSteps& local,
               model::CompiledModel& model, const model::UpdateArrays& arrays,
               std::function<void(std::span<float>)> sum);

  /// `request.update` is the number of the first local step of the round.
  void begin(const model::UpdateRequest& request) override { request_ = request; }
  /// Keeps the parameters and slots at the beginning of the round.
  void begin_round();
  /// One update with the gradient and the sums of a micro-batch. If these are not finite, nor are
  /// the sums of the round, which is then skipped on all replicas. `report`: device memory for the
  /// sums.
  void take_local_step(std::span<float> report);
  /// Sets the gradient to the change of the parameters times `weight`, the fraction of this
  /// replica's samples of the round, and the parameters to those at its beginning.
  void end_local_steps(float weight);
  /// The sums over all local steps of the round.
  const model::MetricSums& sums() const { return sums_; }
  /// The outer step, and the average of the slots. Waits for the work on the stream. Collective.
  void update(std::span<const float> summable) override;
  model::UpdateOutcome outcome() override { return outer_->outcome(); }

 private:
  std::span<float> slot(std::size_t index) override;

  LocalSteps local_;
  model::CompiledModel& model_;
  std::span<float> parameters_;  // those that are trained
  std::function<void(std::span<float>)> sum_;
  std::unique_ptr<model::Updater> inner_;
  std::unique_ptr<model::Updater> outer_;
  model::UpdateRequest request_;
  std::vector<std::vector<float>> start_;  // parameters, then slots, at the beginning of the round
  model::MetricSums sums_;
  std::int64_t taken_ = 0;  // local steps of this round
  float weight_ = 0;
};

}  // namespace lockstep::inline v0::strategy
