#include "lockstep/strategy/normalization.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep::strategy {
namespace {

constexpr std::string_view kGroup = "group:";

}  // namespace

int NormalizationScope::members(int replicas) const {
  if (kind == Kind::local) return 1;
  if (kind == Kind::sync) return replicas;
  if (group < 1 || replicas % group != 0)
    throw Error(
        ErrorCategory::input, "bn",
        fmt::format("expected groups whose size divides the number of replicas, {}", replicas),
        fmt::format("got {}", to_string(*this)));
  return group;
}

NormalizationScope parse_normalization_scope(std::string_view name) {
  if (name == "local") return {};
  if (name == "sync") return {.kind = NormalizationScope::Kind::sync};
  if (name.starts_with(kGroup)) {
    const std::string_view size = name.substr(kGroup.size());
    NormalizationScope scope{.kind = NormalizationScope::Kind::group};
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), scope.group);
    if (error == std::errc{} && end == size.data() + size.size() && scope.group > 0) return scope;
  }
  throw Error(ErrorCategory::input, "bn",
              "expected local, sync or group:K with K replicas, 1 or more",
              fmt::format("got \"{}\"", name));
}

std::string to_string(const NormalizationScope& scope) {
  if (scope.kind == NormalizationScope::Kind::local) return "local";
  if (scope.kind == NormalizationScope::Kind::sync) return "sync";
  return fmt::format("{}{}", kGroup, scope.group);
}

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
    backend_->stream().synchronize();  // work in progress may use the old one
    parts_ = backend_->allocator().allocate(count * sizeof(float));
  }
  return parts_.as<float>().first(count);
}

}  // namespace lockstep::strategy
