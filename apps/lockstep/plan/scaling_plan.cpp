#include "apps/lockstep/plan/scaling_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps {
namespace {

/// Returns the largest efficient number of replicas, at most `most`.
int efficient_count(const Calibration& calibration, const Hardware& hardware,
                    const ScalingOptions& options, int most) {
  std::vector<double> rates{0};
  for (int count = 1; count <= most; ++count) {
    rates.push_back(predict(calibration, hardware, options, count).samples_per_second);
    const int half = (count + 1) / 2;
    if (count > 1 && rates[count] - rates[half] < (count - half) * kLeastGain * rates[1])
      return count - 1;
  }
  return most;
}

/// Returns the minimum link bandwidth at which `most` replicas are efficient, to a percent.
std::optional<double> min_link(const Calibration& calibration, Hardware hardware,
                               const ScalingOptions& options, int most) {
  constexpr double kFastest = 1e13;
  const auto pays = [&](double bits) {
    hardware.bits_per_second = bits;
    return efficient_count(calibration, hardware, options, most) == most;
  };
  double low = hardware.bits_per_second;
  double high = kFastest;
  if (low >= high || !pays(high)) return std::nullopt;
  while (high > low * 1.01) {
    const double middle = std::sqrt(low * high);
    (pays(middle) ? high : low) = middle;
  }
  return high;
}

std::optional<int> min_batch(const Calibration& calibration, const Hardware& hardware,
                             ScalingOptions options, int most) {
  constexpr int kLargest = 1024;
  const std::int64_t batch = options.global_batch;
  for (int factor = 2; factor <= kLargest; factor *= 2) {
    options.global_batch = batch * factor;
    if (efficient_count(calibration, hardware, options, most) == most) return factor;
  }
  return std::nullopt;
}

/// Returns the largest overhead of `row` over ideal scaling from one replica.
std::string limit_of(const Prediction& row, const Prediction& one) {
  const double share = row.per_replica_batch / one.per_replica_batch;
  const std::vector<std::pair<double, const char*>> losses = {
      {row.communication + row.transfer, "communication"},
      {row.compute + row.update - share * (one.compute + one.update), "compute"},
      {row.input - share * one.input, "input"},
      {row.waiting, "waiting"}};
  return std::ranges::max_element(losses, {}, &std::pair<double, const char*>::first)->second;
}

}  // namespace

ScalingPlan plan_scaling(const Calibration& calibration, const Hardware& hardware,
                         const ScalingOptions& options, std::span<const int> replicas) {
  std::set<int> counts(replicas.begin(), replicas.end());
  counts.insert(1);
  LOCKSTEP_CHECK(*counts.begin() == 1);
  ScalingPlan plan{.rows = {}, .most = *counts.rbegin()};
  for (const int count : counts)
    plan.rows.push_back(predict(calibration, hardware, options, count));
  plan.efficient_up_to = efficient_count(calibration, hardware, options, plan.most);
  double most_samples = 0;
  double lowest_cost = 0;
  for (int count = 1; count <= plan.most; ++count) {
    const Prediction row = predict(calibration, hardware, options, count);
    // Costs are compared even without a price. Differences of a thousandth are ignored.
    const double cost = row.hosts / row.samples_per_second;
    if (row.samples_per_second > 1.001 * most_samples) {
      plan.fastest = count;
      most_samples = row.samples_per_second;
    }
    if (count == 1 || cost < 0.999 * lowest_cost) {
      plan.cheapest = count;
      lowest_cost = cost;
    }
  }
  if (plan.efficient_up_to == plan.most) return plan;
  plan.limit = limit_of(predict(calibration, hardware, options, plan.efficient_up_to + 1),
                        plan.rows.front());
  plan.link_for_all = min_link(calibration, hardware, options, plan.most);
  plan.batch_for_all = min_batch(calibration, hardware, options, plan.most);
  if (plan.batch_for_all) {
    const double largest = static_cast<double>(options.global_batch) * *plan.batch_for_all /
                           (options.weak ? 1 : plan.most);
    plan.batch_is_covered = calibration.covers(largest);
  }
  return plan;
}

std::string bit_rate_text(double bits_per_second) {
  for (const auto& [unit, name] : {std::pair(1e9, "Gbit/s"), std::pair(1e6, "Mbit/s")})
    if (bits_per_second >= unit) return fmt::format("{:.3g} {}", bits_per_second / unit, name);
  return fmt::format("{:.3g} kbit/s", bits_per_second / 1e3);
}

std::vector<std::string> assumptions(const Calibration& calibration, const Hardware& hardware,
                                     const ScalingOptions& options, const ScalingPlan& plan) {
  std::vector<std::string> texts;
  texts.push_back(
      hardware.speed == 1
          ? fmt::format("every host computes like the calibrated machine ({})", calibration.machine)
          : fmt::format("every host computes {:.3g} times as fast as the calibrated machine ({})",
                        hardware.speed, calibration.machine));
  texts.push_back(fmt::format(
      "each link carries {} both ways at once, {:.3g} % of it payload, and no other traffic; a "
      "message takes {:.3g} us",
      bit_rate_text(hardware.bits_per_second), 100 * kPayload, 1e6 * hardware.latency_seconds));
  if (hardware.replicas_per_host > 1)
    texts.push_back(fmt::format("{} replicas of a host share its link and its memory",
                                hardware.replicas_per_host));
  const bool has_idle_core = calibration.has_idle_core(hardware.replicas_per_host);
  if (calibration.transfer_seconds_per_byte > 0)
    texts.push_back(
        fmt::format("sending and receiving a byte takes {:.3g} ns of a core, {}",
                    1e9 * calibration.transfer_seconds_per_byte * hardware.transfer_cost,
                    has_idle_core ? "which is idle otherwise" : "which the computation lacks"));
  texts.push_back(fmt::format("the global batch {}", options.weak
                                                         ? "grows with the replicas (weak scaling)"
                                                         : "stays the same (strong scaling)"));
  texts.push_back(
      "steps vary independently on each replica, as on the calibrated machine, and all wait for "
      "the slowest; no host is slower than the others");
  texts.push_back("validation, checkpoints and the start of the job are not included");
  const bool extrapolates =
      std::ranges::any_of(plan.rows, [](const Prediction& row) { return !row.is_covered; });
  if (extrapolates)
    texts.push_back(
        fmt::format("rows with * extrapolate: batches of {} to {} per replica were measured",
                    calibration.timings.front().samples, calibration.timings.back().samples));
  return texts;
}

}  // namespace lockstep::inline v0::apps
