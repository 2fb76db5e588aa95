// Applies the gradients of a step: clipping, the decision whether to apply it, and the optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/optimizer/optimizer_options.h"
#include "lockstep/model/tensor/parameters.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model {

/// One step of an exponential moving average; with decay 0 exactly `value`.
constexpr float follow(float average, float value, float decay) {
  return decay * average + (1 - decay) * value;
}

/// The arrays that an update reads and writes: flat, in the memory of the model's device.
struct UpdateArrays {
  std::span<float> parameters;       ///< updated in place
  std::span<const float> gradients;  ///< in the same layout; reduced over all replicas
  TensorView weights;  ///< the 16-bit copy of the parameters, also updated; empty for float32
  std::span<float> statistics;  ///< moving statistics
  /// The statistics before the step, restored if the step is not applied.
  std::span<const float> kept_statistics;
  /// Decay per update of the exponential moving average of the parameters, which is then the
  /// slot kAverageSlot, after those of the optimizer; 0: none. The first update sets it to the
  /// parameters.
  float average_decay = 0;
};

/// The arguments of one update.
struct UpdateRequest {
  float learning_rate = 0;  ///< learning rate of this update
  std::int64_t update = 1;  ///< counted from 1; used for bias correction
  double clip_norm = 0;     ///< maximum norm of the gradient; 0 disables clipping
  float loss_scale = 1;     ///< the factor on the gradients
};

/// The result of an update.
struct UpdateOutcome {
  bool applied = true;  ///< false: parameters, slots and moving statistics are as before the step
  double gradient_norm = 0;  ///< before clipping, without the loss scale; 0 if clipping is disabled
};

/// The optimizer of one replica, and the decision whether to apply an update. Both depend only on
/// the reduced gradient and the reduced metrics, so all replicas agree. The slots are in the memory
/// of the model's device.
class Updater {
 public:
  virtual ~Updater() = default;

  /// Sets the arguments of the next update; not part of the work that can be recorded and replayed.
  virtual void begin(const UpdateRequest& request) = 0;
  /// Enqueues the update on the model's stream. `summable` is the sum over all replicas of
  /// SummableMetrics; the gradient is multiplied by its gradient_factor(). The step is not applied
  /// if their loss or an element of the gradient is not finite, in every precision, or if all
  /// weights are 0.
  virtual void update(std::span<const float> summable) = 0;
  /// The result of the last update. The caller has waited for its completion.
  virtual UpdateOutcome outcome() = 0;

  /// Slot names of the optimizer, and of the average, in a fixed order, as checkpoints store them.
  const std::vector<std::string>& slot_names() const { return slot_names_; }
  /// A slot as a flat array in the layout of the parameters, on the model's device. Throws Error
  /// (checkpoint) for an unknown name.
  std::span<float> slot(std::string_view name);

 protected:
  /// Creates the names of the slots of `options`.
  Updater(const OptimizerOptions& options, float average_decay)
      : slot_names_(model::slot_names(options)), options_(options), average_decay_(average_decay) {
    if (average_decay > 0) slot_names_.emplace_back(kAverageSlot);
  }
  /// Adds a slot of a derived class.
  void add_slot(std::string_view name) { slot_names_.emplace_back(name); }
  /// The slot with index `index` in slot_names(), flat, on the model's device.
  virtual std::span<float> slot(std::size_t index) = 0;

  /// The options given to the constructor.
  const OptimizerOptions& options() const { return options_; }
  /// Whether it maintains an average of the parameters.
  bool averages() const { return average_decay_ > 0; }
  /// The decay of the average in update number `update`.
  float average_decay(std::int64_t update) const { return update == 1 ? 0 : average_decay_; }

 private:
  std::vector<std::string> slot_names_;
  OptimizerOptions options_;
  float average_decay_;
};

/// The optimizer of a CPU replica. `arrays` must outlive it.
std::unique_ptr<Updater> make_host_updater(const OptimizerOptions& options,
                                           const ParameterTable& table, const UpdateArrays& arrays);

}  // namespace lockstep::inline v0::model
