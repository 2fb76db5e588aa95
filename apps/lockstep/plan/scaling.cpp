#include "apps/lockstep/plan/scaling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>

#include "lockstep/allreduce/buckets/gradient_buckets.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr double kFloatBytes = sizeof(float);
// Recursive doubling up to this size (algorithm/ring_reduction.h).
constexpr double kSmallBytes = 16 * 1024;
// Size of the step scalars after the gradient.
constexpr std::size_t kReportElements = 64;

double mix(double first, double second, double weight) { return first + (second - first) * weight; }

/// Returns the buckets in the order in which they are sent; the last one has the step scalars.
std::vector<SentBucket> buckets_of(const Calibration& calibration, const Hardware& hardware,
                                   const ScalingOptions& options, const BatchTiming& timing,
                                   double gradient_seconds, int replicas, int hosts) {
  std::vector<std::size_t> counts(calibration.elements.begin(), calibration.elements.end());
  counts.push_back(kReportElements);
  const double wire_bytes =
      options.buckets.wire == allreduce::WireType::float32 ? kFloatBytes : kFloatBytes / 2;
  const int in_host = std::min(replicas, hardware.replicas_per_host);
  const double memory = hardware.host_bytes_per_second > 0 ? hardware.host_bytes_per_second
                                                           : calibration.bytes_per_second;
  std::vector<SentBucket> sent;
  std::size_t parameter = 0;
  for (const allreduce::BucketRange& range : allreduce::plan_buckets(counts, options.buckets)) {
    const double bytes = static_cast<double>(range.end - range.begin) * wire_bytes;
    parameter += range.entries;  // one past the last parameter of the bucket
    const bool is_last = parameter > calibration.elements.size();
    SentBucket bucket{.ready = gradient_seconds};
    if (!is_last && hosts > 1)
      bucket.ready =
          std::max(0.0, gradient_seconds - timing.lead_seconds[parameter - 1] / hardware.speed);
    if (hosts > 1) {
      bucket.link = reduction_seconds(bytes, hosts, hardware);
      bucket.processor = 2.0 * (hosts - 1) / hosts * bytes / in_host *
                         calibration.transfer_seconds_per_byte * hardware.transfer_cost;
    }
    if (in_host > 1 && memory > 0) {
      // Transfers within a host of GPUs overlap with the network transfer of other parts of the
      // bucket.
      const double within = 2.0 * in_host * bytes / memory;
      bucket.link = calibration.is_gpu() ? std::max(bucket.link, within) : bucket.link + within;
    }
    sent.push_back(bucket);
  }
  return sent;
}

}  // namespace

bool Calibration::covers(double samples) const {
  return samples >= static_cast<double>(timings.front().samples) &&
         samples <= static_cast<double>(timings.back().samples);
}

BatchTiming Calibration::at(double samples) const {
  LOCKSTEP_CHECK(!timings.empty());
  const auto count = [](const BatchTiming& timing) { return static_cast<double>(timing.samples); };
  if (timings.size() == 1) {  // proportional, except the update
    BatchTiming timing = timings.front();
    const double ratio = samples / count(timing);
    timing.seconds = (timing.seconds - timing.update_seconds) * ratio + timing.update_seconds;
    timing.deviation *= ratio;
    timing.input_seconds *= ratio;
    timing.activation_bytes *= ratio;
    for (double& lead : timing.lead_seconds) lead *= ratio;
    timing.samples = static_cast<std::int64_t>(samples);
    return timing;
  }
  std::size_t upper = 1;
  while (upper + 1 < timings.size() && count(timings[upper]) < samples) ++upper;
  const BatchTiming& low = timings[upper - 1];
  const BatchTiming& high = timings[upper];
  const double weight = (samples - count(low)) / (count(high) - count(low));
  const auto line = [&](double first, double second) {
    return std::max(0.0, mix(first, second, weight));
  };
  BatchTiming timing{.samples = static_cast<std::int64_t>(samples),
                     .seconds = line(low.seconds, high.seconds),
                     .deviation = line(low.deviation, high.deviation),
                     .input_seconds = line(low.input_seconds, high.input_seconds),
                     .update_seconds = line(low.update_seconds, high.update_seconds),
                     .activation_bytes = line(low.activation_bytes, high.activation_bytes)};
  for (std::size_t i = 0; i < low.lead_seconds.size(); ++i)
    timing.lead_seconds.push_back(line(low.lead_seconds[i], high.lead_seconds[i]));
  // Extrapolation below the smallest measured batch would reach 0.
  if (weight < 0) timing.seconds = std::max(timing.seconds, low.seconds * samples / count(low));
  timing.update_seconds = std::min(timing.update_seconds, timing.seconds);
  // Two deviations are too inexact for extrapolation.
  if (weight < 0 || weight > 1) {
    const BatchTiming& nearest = weight < 0 ? low : high;
    timing.deviation = nearest.deviation * timing.seconds / nearest.seconds;
  }
  return timing;
}

double reduction_seconds(double bytes, int hosts, const Hardware& hardware) {
  if (hosts < 2) return 0;
  const double alpha = hardware.latency_seconds;
  const double per_byte = 8 / (hardware.bits_per_second * kPayload);
  if (bytes <= kSmallBytes) {
    const auto count = static_cast<unsigned>(hosts);
    const int rounds = std::bit_width(count) - 1 + (std::has_single_bit(count) ? 0 : 2);
    return rounds * (alpha + bytes * per_byte);
  }
  return 2.0 * (hosts - 1) * alpha + 2.0 * (hosts - 1) / hosts * bytes * per_byte;
}

double expected_maximum(int count) {
  // The integral of 1 - F(x)^n over the positive x, less that of F(x)^n over the negative ones. The
  // integrand is so smooth that these steps are exact to 13 digits for up to 4,096.
  constexpr double kEnd = 8;
  constexpr int kSteps = 200;
  constexpr double kWidth = kEnd / kSteps;
  double sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    const double x = (step + 0.5) * kWidth;
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    sum += 1 - std::pow(below, count) - std::pow(1 - below, count);
  }
  return sum * kWidth;
}

Overlap overlap(const std::vector<SentBucket>& buckets, double compute, bool has_idle_core) {
  double now = 0;
  double computed = 0;      // completed seconds of computation
  double computed_at = -1;  // when the computation ended
  const auto compute_until = [&](double progress) {
    computed = progress;
    if (computed >= compute && computed_at < 0) computed_at = now;
  };
  for (const SentBucket& bucket : buckets) {
    const double ready = std::min(bucket.ready, compute);
    if (computed < ready) {  // nothing to send
      now += ready - computed;
      compute_until(ready);
    }
    double left = 1;  // remaining share of the bucket
    if (computed < compute) {
      // A core divides its time evenly between two busy threads.
      const double duration =
          std::max(bucket.link, has_idle_core ? bucket.processor : 2 * bucket.processor);
      const double rate = has_idle_core || duration <= 0 ? 1 : 1 - bucket.processor / duration;
      const double until_end = (compute - computed) / rate;
      const bool ends_first = until_end <= duration;
      now += std::min(duration, until_end);
      left = ends_first && duration > 0 ? 1 - until_end / duration : 0;
      compute_until(ends_first ? compute : computed + duration * rate);
    }
    now += left * std::max(bucket.link, bucket.processor);
  }
  if (computed < compute) {
    now += compute - computed;
    compute_until(compute);
  }
  computed_at = std::max(computed_at, compute);
  return {.slowed = computed_at - compute, .exposed = std::max(0.0, now - computed_at)};
}

Prediction predict(const Calibration& calibration, const Hardware& hardware,
                   const ScalingOptions& options, int replicas) {
  LOCKSTEP_CHECK(replicas >= 1);
  const auto step_of = [&](int count) {
    Prediction result{
        .replicas = count,
        .hosts = (count + hardware.replicas_per_host - 1) / hardware.replicas_per_host,
        .global_batch = options.global_batch * (options.weak ? count : 1)};
    const std::int64_t batch = (result.global_batch + count - 1) / count;
    result.per_replica_batch = static_cast<double>(batch);
    result.is_covered = calibration.covers(result.per_replica_batch);
    const BatchTiming timing = calibration.at(result.per_replica_batch);
    result.update = timing.update_seconds / hardware.speed;
    result.compute = (timing.seconds - timing.update_seconds) / hardware.speed;
    result.memory_bytes = calibration.parameter_bytes + calibration.gradient_bytes +
                          calibration.slot_bytes + timing.activation_bytes;
    if (count > 1) {
      const std::vector<SentBucket> buckets =
          buckets_of(calibration, hardware, options, timing, result.compute, count, result.hosts);
      for (const SentBucket& bucket : buckets) result.link_seconds += bucket.link;
      const Overlap sent =
          overlap(buckets, result.compute,
                  calibration.has_idle_core(std::min(count, hardware.replicas_per_host)));
      result.transfer = sent.slowed;
      result.communication = sent.exposed;
      result.waiting = timing.deviation / hardware.speed * expected_maximum(count);
    }
    // Reading continues while the replica waits for others.
    result.input = std::max(
        0.0, timing.input_seconds - result.transfer - result.communication - result.waiting);
    result.samples_per_second = static_cast<double>(result.global_batch) / result.step();
    return result;
  };
  Prediction result = step_of(replicas);
  if (replicas > 1)
    result.efficiency = result.samples_per_second / (replicas * step_of(1).samples_per_second);
  if (options.samples > 0) {
    result.hours = options.samples / result.samples_per_second / 3600;
    result.cost = result.hours * result.hosts * hardware.price;
  }
  return result;
}

}  // namespace lockstep::inline v0::apps
