#include "lockstep/allreduce/buckets/straggler.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr double kPhaseRatio = 1.2;
constexpr double kStepRatio = 1.05;
constexpr double kMinSeconds = 1e-3;

/// The median of all values except number `left_out`. For an even number it is the upper of the
/// middle two, so that two slow replicas out of three are not compared with the fast one.
double median_of_others(std::span<const double> values, std::size_t left_out) {
  std::vector<double> others;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i != left_out) others.push_back(values[i]);
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::ranges::nth_element(others, middle);
  return *middle;
}

bool exceeds(double seconds, double median, double ratio) {
  return seconds > ratio * median && seconds - median > kMinSeconds;
}

std::string milliseconds(double seconds) {
  const double value = seconds * 1e3;
  return value < 10 ? fmt::format("{:.1f} ms", value) : fmt::format("{:.0f} ms", value);
}

}  // namespace

StragglerReport::StragglerReport(std::size_t replicas) : sums_(replicas) {}

void StragglerReport::add(std::span<const BusySeconds> busy, std::size_t steps) {
  LOCKSTEP_CHECK_OP(busy.size(), ==, sums_.size());
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += busy[i];
  steps_ += steps;
}

std::vector<Straggler> StragglerReport::stragglers() const {
  std::vector<Straggler> found;
  if (sums_.size() < 2 || steps_ == 0) return found;
  std::vector<double> input;
  std::vector<double> compute;
  std::vector<double> whole;
  const auto steps = static_cast<double>(steps_);
  for (const BusySeconds& sum : sums_) {
    input.push_back(sum.input / steps);
    compute.push_back(sum.compute / steps);
    whole.push_back(input.back() + compute.back());
  }
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const double usual = median_of_others(whole, i);
    if (!exceeds(whole[i], usual, kStepRatio)) continue;
    const Straggler by_input{i, "input", input[i], median_of_others(input, i), whole[i] - usual};
    const Straggler by_compute{i, "compute", compute[i], median_of_others(compute, i),
                               whole[i] - usual};
    const bool more_input =
        by_input.seconds - by_input.median > by_compute.seconds - by_compute.median;
    const Straggler& straggler = more_input ? by_input : by_compute;
    if (exceeds(straggler.seconds, straggler.median, kPhaseRatio)) found.push_back(straggler);
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &Straggler::wait);
  return found;
}

void StragglerReport::restart() {
  std::ranges::fill(sums_, BusySeconds{});
  steps_ = 0;
}

std::vector<std::string> to_sentences(std::span<const Straggler> stragglers,
                                      std::span<const std::string> names) {
  std::vector<std::string> sentences;
  for (const Straggler& straggler : stragglers)
    sentences.push_back(fmt::format(
        "{} is slow: {} takes {} per step, the median is {}; the others wait {} per step for it",
        names[straggler.replica], straggler.phase, milliseconds(straggler.seconds),
        milliseconds(straggler.median), milliseconds(straggler.wait)));
  return sentences;
}

}  // namespace lockstep::inline v0::allreduce
