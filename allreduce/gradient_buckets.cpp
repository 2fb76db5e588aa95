#include "allreduce/gradient_buckets.h"

#include <utility>

#include "device/error.h"

namespace lockstep::allreduce {
namespace {

std::vector<std::size_t> counts_between(std::span<const std::size_t> offsets, std::size_t end) {
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::size_t next = i + 1 < offsets.size() ? offsets[i + 1] : end;
    LOCKSTEP_CHECK_OP(offsets[i], <=, next);
    counts.push_back(next - offsets[i]);
  }
  return counts;
}

}  // namespace

std::vector<BucketRange> plan_buckets(std::span<const std::size_t> counts, const BucketOptions& options) {
  std::vector<BucketRange> buckets;
  BucketRange open;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    open.end += counts[i];
    ++open.entries;
    const std::size_t target = buckets.empty() ? options.first_bytes : options.bytes;
    if ((open.end - open.begin) * sizeof(float) < target && i + 1 < counts.size()) continue;
    buckets.push_back(open);
    open = {open.end, open.end, 0};
  }
  return buckets;
}

GradientBuckets::GradientBuckets(Communicator group, std::span<float> gradients, std::span<const std::size_t> offsets,
                                 const BucketOptions& options)
    : group_(std::move(group)), gradients_(gradients), is_ready_(offsets.size()) {
  LOCKSTEP_CHECK_OP(offsets.empty() ? gradients.size() : offsets[0], ==, 0U);
  buckets_ = plan_buckets(counts_between(offsets, gradients.size()), options);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    bucket_of_.insert(bucket_of_.end(), buckets_[bucket].entries, bucket);
  start_step();
}

void GradientBuckets::start_step() {
  requests_.clear();
  next_ = 0;
  is_ready_.assign(is_ready_.size(), false);
  missing_.clear();
  for (const BucketRange& bucket : buckets_) missing_.push_back(bucket.entries);
}

void GradientBuckets::ready(std::size_t parameter) {
  LOCKSTEP_CHECK_OP(parameter, <, bucket_of_.size());
  LOCKSTEP_CHECK(!is_ready_[parameter]);
  is_ready_[parameter] = true;
  --missing_[bucket_of_[parameter]];
  // Buckets go out in their order on every member, whatever the order in which parameters become ready.
  while (next_ < buckets_.size() && missing_[next_] == 0) launch_next();
}

void GradientBuckets::launch_next() {
  const BucketRange& bucket = buckets_[next_++];
  ++launched_;
  requests_.push_back(group_.all_reduce(gradients_.subspan(bucket.begin, bucket.end - bucket.begin)));
}

void GradientBuckets::finish() {
  while (next_ < buckets_.size()) launch_next();
  for (Request& request : requests_) request.wait();
  start_step();
}

}  // namespace lockstep::allreduce
