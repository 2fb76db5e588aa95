#include "model/backend.h"

namespace lockstep::model {

std::unique_ptr<Backend> make_backend(device::Device device, Precision precision, StatisticsExchange* statistics) {
  if (device.kind == device::DeviceKind::gpu) return make_gpu_backend(device, precision, statistics);
  return make_cpu_backend(device, precision, statistics);
}

}  // namespace lockstep::model
