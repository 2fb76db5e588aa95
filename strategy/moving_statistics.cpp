#include "strategy/moving_statistics.h"

#include <algorithm>

namespace lockstep::strategy {

void average_moving_statistics(const allreduce::Communicator& group, std::span<float> buffers, std::int64_t samples) {
  if (buffers.empty()) return;
  std::int64_t total = samples;
  group.all_reduce(std::span(&total, 1)).wait();
  if (total == 0) return;
  const auto weight = static_cast<float>(static_cast<double>(samples) / static_cast<double>(total));
  // 0 times a number that is not finite is none either, and would be all replicas' mean.
  if (weight == 0)
    std::ranges::fill(buffers, 0.0F);
  else
    for (float& value : buffers) value *= weight;
  group.all_reduce(buffers).wait();
}

}  // namespace lockstep::strategy
