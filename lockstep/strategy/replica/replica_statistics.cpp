#include "lockstep/strategy/replica/replica_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/device/host_view.h"

namespace lockstep::inline v0::strategy {

void average_moving_statistics(const allreduce::Communicator& group, std::span<float> buffers,
                               std::int64_t samples) {
  if (buffers.empty()) return;
  std::int64_t total = samples;
  group.all_reduce(std::span(&total, 1)).wait();
  if (total == 0) return;
  const auto weight = static_cast<float>(static_cast<double>(samples) / static_cast<double>(total));
  // 0 times a non-finite number is not finite either, and would make the mean of all replicas
  // non-finite.
  if (weight == 0)
    std::ranges::fill(buffers, 0.0F);
  else
    for (float& value : buffers) value *= weight;
  group.all_reduce(buffers).wait();
}

MovingStatistics::MovingStatistics(allreduce::Communicator group, model::CompiledModel& model,
                                   bool are_equal)
    : group_(std::move(group)),
      model_(model),
      are_equal_(are_equal),
      kept_(model.backend().allocator().allocate(model.buffers().size_bytes())) {}

void MovingStatistics::adopt_mean() {
  average();
  samples_since_mean_ = 0;
  agree_ = true;
}

void MovingStatistics::install_mean() {
  keep();
  average();
}

void MovingStatistics::average() {
  if (are_equal_) return;
  device::Stream& stream = model_.backend().stream();
  device::HostView view(model_.buffers().first(model_.network().changing_buffers()), stream);
  average_moving_statistics(group_, view.values(), samples_since_mean_);
  view.write_back(stream);
}

void MovingStatistics::keep() { model_.backend().copy(kept(), model_.buffers()); }

void MovingStatistics::restore() { model_.backend().copy(model_.buffers(), kept()); }

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
  seconds_ += seconds_since(begin);
}

std::span<float> ReplicaStatistics::parts(std::size_t part) {
  const std::size_t count = static_cast<std::size_t>(replicas_ / members_) * part;
  if (parts_.size() < count * sizeof(float)) {
    backend_->stream().synchronize();  // work in progress may use the old one
    parts_ = backend_->allocator().allocate(count * sizeof(float));
  }
  return parts_.as<float>().first(count);
}

}  // namespace lockstep::inline v0::strategy
