#include "lockstep/strategy/gradient_memory.h"

#include "lockstep/base/error.h"

namespace lockstep::strategy {
namespace {

constexpr std::size_t kAlignment = 64;  // bytes; what a Buffer promises

}  // namespace

device::Buffer GradientMemory::allocate(std::size_t bytes) {
  LOCKSTEP_CHECK_OP(memory_.size(), ==, std::size_t{0});
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t together = padded + passenger_count() * sizeof(float);
  memory_ = group_.allocate(together);
  LOCKSTEP_CHECK_OP(memory_.size(), ==, together);
  return {memory_.data(), bytes, memory_.device(), [](void*) {}};
}

}  // namespace lockstep::strategy
