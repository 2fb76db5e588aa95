// Steps of training, one by one, on any kind of device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "lockstep/device/buffer.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/optimizer/updater.h"

namespace lockstep::inline v0::model {

class ReferenceTraining {
 public:
  /// `fill` writes the initial value of each parameter.
  ReferenceTraining(Network network, device::DeviceKind kind,
                    const std::function<void(const ParameterInfo&, std::span<float>)>& fill);

  CompiledModel& model() { return model_; }
  device::HostView view(std::span<float> values);

  std::unique_ptr<Updater> updater(const OptimizerOptions& options);
  /// The loss of a batch, which is the global one; the gradients are in the model.
  double train(const BatchView& batch);
  /// Update `number` after train().
  void update(Updater& updater, float rate, std::int64_t number);

 private:
  std::unique_ptr<device::Allocator> allocator_;
  CompiledModel model_;
  device::Buffer kept_;
  device::Buffer summable_;
};

}  // namespace lockstep::inline v0::model
