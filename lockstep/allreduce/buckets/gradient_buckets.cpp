#include "lockstep/allreduce/buckets/gradient_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <type_traits>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::allreduce {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::size_t> counts_between(std::span<const std::size_t> offsets, std::size_t end) {
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::size_t next = i + 1 < offsets.size() ? offsets[i + 1] : end;
    LOCKSTEP_CHECK_OP(offsets[i], <=, next);
    counts.push_back(next - offsets[i]);
  }
  return counts;
}

std::size_t largest_of(std::span<const BucketRange> buckets) {
  std::size_t largest = 0;
  for (const BucketRange& bucket : buckets) largest = std::max(largest, bucket.end - bucket.begin);
  return largest;
}

}  // namespace

std::vector<BucketRange> plan_buckets(std::span<const std::size_t> counts,
                                      const BucketOptions& options) {
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

GradientBuckets::GradientBuckets(Communicator group, std::span<float> gradients,
                                 std::span<const std::size_t> offsets, const BucketOptions& options,
                                 std::size_t exact_entries, device::Stream* compute,
                                 std::shared_ptr<CommunicationThread> thread)
    : group_(std::move(group)),
      gradients_(gradients),
      options_(options),
      first_bytes_(options.first_bytes),
      counts_(counts_between(offsets, gradients.size())),
      exact_entries_(exact_entries),
      is_ready_(offsets.size()),
      shared_thread_(std::move(thread)) {
  LOCKSTEP_CHECK_OP(offsets.empty() ? gradients.size() : offsets[0], ==, 0U);
  LOCKSTEP_CHECK_OP(exact_entries, <=, offsets.size());
  if (compute != nullptr && compute->device().kind == device::DeviceKind::gpu)
    streamed_ = std::make_unique<StreamedSum>(group_, *compute, options.wire);
  plan();
}

// Pending reductions use this object. If one fails, the next operation of the group throws.
GradientBuckets::~GradientBuckets() {
  try {
    wait_pending();
  } catch (...) {
    return;
  }
}

// Also needed if all reductions of this object run on the calling thread: a shared thread may still
// be using the group for other objects.
void GradientBuckets::wait_pending() const {
  if (shared_thread_)
    shared_thread_->wait();
  else if (thread_)
    thread_->wait();
}

void GradientBuckets::set_bytes(std::size_t bytes) {
  LOCKSTEP_CHECK(std::ranges::none_of(is_ready_, [](bool is_ready) { return is_ready; }));
  options_.bytes = bytes;
  options_.first_bytes = std::min(first_bytes_, bytes);
  plan();
}

void GradientBuckets::plan() {
  const bool narrow = options_.wire != WireType::float32;
  const std::size_t together = narrow ? counts_.size() - exact_entries_ : counts_.size();
  buckets_ = plan_buckets(std::span(counts_).first(together), options_);
  first_exact_ = narrow ? buckets_.size() : 0;
  if (narrow && exact_entries_ > 0)
    buckets_.push_back(
        {buckets_.empty() ? 0 : buckets_.back().end, gradients_.size(), exact_entries_});
  bucket_of_.clear();
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    bucket_of_.insert(bucket_of_.end(), buckets_[bucket].entries, bucket);
  if (narrow) reserve_wire(largest_of(std::span(buckets_).first(first_exact_)));
  const bool needs_thread = !streamed_ || group_.moves_on_host();
  if (!thread_ && needs_thread && group_.overlaps() && buckets_.size() > 1)
    thread_ = shared_thread_ ? shared_thread_ : std::make_shared<CommunicationThread>();
  start_step();
}

void GradientBuckets::reserve_wire(std::size_t values) {
  if (streamed_)
    streamed_->reserve(values);
  else
    wire_ = group_.allocate(values * sizeof(std::uint16_t));
}

void GradientBuckets::start_step() {
  next_ = 0;
  is_ready_.assign(is_ready_.size(), false);
  missing_.clear();
  for (const BucketRange& bucket : buckets_) missing_.push_back(bucket.entries);
  squared_error_ = squared_norm_ = 0;
  waits_.clear();
}

std::vector<std::string> GradientBuckets::contents(
    std::span<const std::pair<std::size_t, std::string_view>> names,
    std::string_view unnamed) const {
  std::vector<std::vector<std::string_view>> by_bucket(buckets_.size());
  for (const auto& [parameter, name] : names) by_bucket[bucket_of_[parameter]].push_back(name);
  std::vector<std::string> contents;
  for (const std::vector<std::string_view>& all : by_bucket)
    contents.push_back(all.empty()       ? std::string(unnamed)
                       : all.size() == 1 ? std::string(all.front())
                                         : fmt::format("{} .. {}", all.front(), all.back()));
  return contents;
}

void GradientBuckets::ready(std::size_t parameter) {
  LOCKSTEP_CHECK_OP(parameter, <, bucket_of_.size());
  LOCKSTEP_CHECK(!is_ready_[parameter]);
  is_ready_[parameter] = true;
  if (group_.activity() != nullptr) group_.activity()->tick();
  --missing_[bucket_of_[parameter]];
  // Buckets are launched in the same order on every member, in any order of ready parameters.
  // finish() launches the last one.
  while (starts_early() && next_ + 1 < buckets_.size() && missing_[next_] == 0)
    run_on_host([this] { launch_next(); });
}

void GradientBuckets::run_on_host(std::function<void()> on_host) {
  if (host_runner_) return host_runner_(std::move(on_host));
  on_host();
}

void GradientBuckets::launch_next() {
  const std::size_t bucket = next_++;
  ++launched_;
  if (!streamed_) return thread_->submit([this, bucket] { reduce(bucket); });
  const auto ready = std::make_shared<device::Event>(streamed_->mark());
  if (!thread_) return reduce(bucket, ready.get());
  thread_->submit([this, bucket, ready] { reduce(bucket, ready.get()); });
}

void GradientBuckets::finish() {
  run_on_host([this] { launch_rest(); });
}

void GradientBuckets::launch_rest() {
  const trace::Span span("wait for reductions");
  const Clock::time_point begin = Clock::now();
  wait_pending();
  for (; next_ < buckets_.size(); ++next_) {
    ++launched_;
    if (streamed_) {
      const device::Event ready = streamed_->mark();
      reduce(next_, &ready);
    } else {
      reduce(next_);
    }
  }
  if (streamed_) streamed_->join();
  const double exposed = seconds_since(begin);
  times_.exposed += exposed;
  times_.waited += std::min(exposed, seconds_waited_since(begin));
  if (measures_error_ && squared_norm_ > 0)
    wire_error_.relative = std::sqrt(squared_error_ / squared_norm_);
  measures_error_ = false;
  start_step();
}

void GradientBuckets::sum(std::span<float> values, device::Stream& stream) {
  run_on_host([this, values, &stream] { sum_now(values, stream); });
}

// Runs on the thread of the buckets if there is one, so that only this thread of the member uses
// the group.
void GradientBuckets::sum_now(std::span<float> values, device::Stream& stream) {
  const Clock::time_point begin = Clock::now();
  double waited = 0;
  const auto operation = [&] {
    const double waited_before = group_.seconds_waited();
    Request request = group_.all_reduce(values, ReduceOp::sum, stream);
    if (host_waits())
      request.wait();
    else
      request.wait(stream);
    waited = group_.seconds_waited() - waited_before;
  };
  if (thread_) {
    thread_->submit(operation);
    thread_->wait();
  } else {
    wait_pending();
    operation();
  }
  const double exposed = seconds_since(begin);
  times_.exposed += exposed;
  times_.waited += std::min(exposed, waited);
}

// Members wait for each other at the start of a reduction.
void GradientBuckets::reduce(std::size_t bucket, const device::Event* ready) {
  const Clock::time_point begin = Clock::now();
  const double waited_before = group_.seconds_waited();
  if (streamed_)
    reduce_on_gpu(bucket, *ready);
  else
    reduce_values(bucket);
  waits_.push_back({begin, group_.seconds_waited() - waited_before});
}

double GradientBuckets::seconds_waited_since(Clock::time_point begin) const {
  double seconds = 0;
  for (const Wait& wait : waits_) {
    const double before = std::chrono::duration<double>(begin - wait.begin).count();
    seconds += std::max(0.0, wait.seconds - std::max(0.0, before));
  }
  return seconds;
}

// Recordings in pieces and error measurements allocate memory between reductions.
bool GradientBuckets::host_waits() const { return host_waits_ || host_runner_ || measures_error_; }

std::span<float> GradientBuckets::values_of(std::size_t bucket) const {
  return gradients_.subspan(buckets_[bucket].begin, buckets_[bucket].end - buckets_[bucket].begin);
}

void GradientBuckets::reduce_on_gpu(std::size_t bucket, const device::Event& ready) {
  const std::span<float> values = values_of(bucket);
  const Communicator group = group_.for_bucket(static_cast<int>(bucket));
  streamed_->set_host_waits(host_waits());
  if (bucket >= first_exact_) return streamed_->add_exact(group, values, ready);
  if (!measures_error_) return streamed_->add(group, values, ready);
  const StreamedSum::Both sums = streamed_->add_in_both_types(group, values, ready);
  add_error(sums.narrow, sums.exact);
}

void GradientBuckets::reduce_values(std::size_t bucket) {
  const std::span<float> values = values_of(bucket);
  const Communicator group = group_.for_bucket(static_cast<int>(bucket));
  if (bucket >= first_exact_) return group.all_reduce(values).wait();
  const bool measures = measures_error_;
  std::vector<float> exact;
  if (measures) {
    exact.assign(values.begin(), values.end());
    group.all_reduce(std::span(exact)).wait();
  }
  if (options_.wire == WireType::bfloat16)
    reduce_as<BFloat16>(group, values);
  else
    reduce_as<Float16>(group, values);
  if (measures) add_error(values, exact);
}

template <typename Half>
void GradientBuckets::reduce_as(const Communicator& group, std::span<float> values) {
  const std::span<Half> halves = wire_.as<Half>().first(values.size());
  const float scale = std::is_same_v<Half, Float16> ? scale_for(group, values) : 1.0F;
  if (scale != 1.0F)
    for (float& value : values) value *= scale;
  narrow(values, halves);
  group.all_reduce(halves).wait();
  widen(std::span<const Half>(halves), values);
  if (scale != 1.0F)
    for (float& value : values) value /= scale;
}

float GradientBuckets::scale_for(const Communicator& group, std::span<const float> values) {
  std::uint32_t bits = 0;
  for (const float value : values) bits = std::max(bits, magnitude_bits(value));
  auto largest = std::bit_cast<float>(bits);
  group.all_reduce(std::span(&largest, 1), ReduceOp::max).wait();
  return wire_scale(largest, group.size());
}

void GradientBuckets::add_error(std::span<const float> narrow, std::span<const float> exact) {
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    const double difference =
        std::abs(static_cast<double>(narrow[i]) - static_cast<double>(exact[i]));
    squared_error_ += difference * difference;
    squared_norm_ += static_cast<double>(exact[i]) * static_cast<double>(exact[i]);
    wire_error_.largest = std::max(wire_error_.largest, difference);
  }
}

}  // namespace lockstep::inline v0::allreduce
