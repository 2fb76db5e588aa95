#include "lockstep/strategy/replica_statistics.h"

#include <algorithm>

#include "lockstep/base/error.h"

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

ReplicaStatistics::ReplicaStatistics(int replica, int replicas, int members)
    : replica_(replica), replicas_(replicas), members_(members) {
  LOCKSTEP_CHECK_OP(replicas % members, ==, 0);
}

void ReplicaStatistics::attach(allreduce::GradientBuckets& buckets, model::Backend& backend) {
  buckets_ = &buckets;
  backend_ = &backend;
}

void ReplicaStatistics::sum(std::span<float> values) {
  LOCKSTEP_CHECK(buckets_ != nullptr);
  const auto begin = std::chrono::steady_clock::now();
  if (members_ == replicas_) {
    buckets_->sum(values, backend_->stream());
  } else {
    const std::span<float> all = parts(values.size());
    const std::span<float> mine =
        all.subspan(static_cast<std::size_t>(replica_ / members_) * values.size(), values.size());
    backend_->fill_with_zeros(all);
    backend_->copy(mine, values);
    buckets_->sum(all, backend_->stream());
    backend_->copy(values, mine);
  }
  seconds_ += std::chrono::steady_clock::now() - begin;
}

std::span<float> ReplicaStatistics::parts(std::size_t part) {
  const std::size_t count = static_cast<std::size_t>(replicas_ / members_) * part;
  if (parts_.size() < count * sizeof(float)) {
    backend_->stream().synchronize();  // work under way may use the old one
    parts_ = backend_->allocator().allocate(count * sizeof(float));
  }
  return parts_.as<float>().first(count);
}

}  // namespace lockstep::strategy
