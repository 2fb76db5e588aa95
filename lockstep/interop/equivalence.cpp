#include "lockstep/interop/equivalence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/base/error.h"
#include "lockstep/interop/gradient_fit.h"
#include "lockstep/interop/step_recording.h"

namespace lockstep::inline v0::interop {
namespace {

constexpr const char* kWhere = "verify_equivalence";
constexpr double kClose = 0.01;  // relative difference of equal factors and shares

bool is_close(double a, double b) { return std::abs(a - b) <= kClose * std::abs(b); }

/// A loop that has run with a recording.
struct Run {
  StepRecording steps;
  StepLosses losses{};

  void make(job::Workers& workers, const std::function<StepLosses(job::Workers&)>& loop) {
    // Not owned: the loop's reducers end before this object.
    workers.observe({std::shared_ptr<void>(), &steps});
    try {
      losses = loop(workers);
    } catch (...) {
      workers.observe(nullptr);
      throw;
    }
    workers.observe(nullptr);
  }
};

/// Compares the runs alone and together; all members are collective.
class Comparison {
 public:
  Comparison(job::Workers& ranks, const Run& alone, const Run& together, double tolerance)
      : ranks_(ranks), alone_(alone), together_(together), tolerance_(tolerance) {}

  EquivalenceResult result() {
    if (auto found = compare_initial_weights()) return *found;
    if (together_.steps.difference()) return explain(*together_.steps.difference());
    if (auto found = compare_numbers_of_steps()) return *found;
    return compare_losses();
  }

 private:
  const std::vector<RecordedReducer>& alone() const { return alone_.steps.reducers(); }
  const std::vector<RecordedReducer>& together() const { return together_.steps.reducers(); }

  std::vector<double> gather(double mine) const {
    std::vector<double> all;
    for (const auto& one : ranks_.all_gather(std::span<const double>(&mine, 1)))
      all.push_back(one.front());
    return all;
  }

  static EquivalenceResult found(Mistake mistake, const std::string& expected,
                                 const std::string& actual) {
    return {.mistake = mistake, .message = {kWhere, "expected " + expected, "got " + actual}};
  }
  /// A cause, which explain() completes.
  static EquivalenceResult likely(Mistake mistake, std::string cause) {
    return {.mistake = mistake, .message = {kWhere, {}, std::move(cause)}};
  }

  std::optional<EquivalenceResult> compare_initial_weights() const {
    for (std::size_t reducer = 0; reducer < together().size(); ++reducer) {
      const RecordedReducer& here = together()[reducer];
      const auto all = ranks_.all_gather(std::span(here.hashes));
      const bool begins_anew = reducer >= alone().size() || alone()[reducer].hashes == here.hashes;
      const std::vector<double> anew = gather(begins_anew ? 1 : 0);
      for (std::size_t i = 0; i < all.front().size(); ++i)
        for (std::size_t rank = 1; rank < all.size(); ++rank) {
          if (all[rank][i] == all.front()[i]) continue;
          EquivalenceResult result =
              found(Mistake::initial_weights, "all ranks to begin with the same parameters",
                    fmt::format("other values of {} on rank {} than on rank 0: call "
                                "broadcast_parameters() before the first step",
                                here.parameters[i].name, rank));
          result.step = 1;
          result.parameter = here.parameters[i].name;
          return result;
        }
      if (anew.front() == 0)
        return found(Mistake::initial_weights,
                     "the loop to begin with the same parameters each time it runs",
                     "others the second time: create the model in the loop, from a fixed seed");
    }
    return std::nullopt;
  }

  std::optional<EquivalenceResult> compare_numbers_of_steps() const {
    for (std::size_t reducer = 0; reducer < together().size(); ++reducer) {
      const double made = reducer < alone().size() ? static_cast<double>(alone()[reducer].made) : 0;
      const double expected = gather(made).front();
      if (static_cast<double>(together()[reducer].made) == expected) continue;
      return found(Mistake::last_batch, fmt::format("{} steps, as one process makes", expected),
                   fmt::format("{} on {} ranks: an incomplete batch is dropped or divided in "
                               "another way",
                               together()[reducer].made, ranks_.size()));
    }
    return std::nullopt;
  }

  // A rank's loss counts by its samples.
  EquivalenceResult compare_losses() const {
    std::size_t count = std::min(together_.losses.size(), together().front().steps.size());
    for (const double other : gather(static_cast<double>(std::min(count, alone_.losses.size()))))
      count = std::min(count, static_cast<std::size_t>(other));
    std::vector<double> sums(2 * count);
    for (std::size_t i = 0; i < count; ++i) {
      const double samples = together().front().steps[i].samples;
      sums[2 * i] = samples == 0 ? 0 : samples * together_.losses[i];
      sums[2 * i + 1] = samples;
    }
    ranks_.all_reduce(std::span(sums));
    for (std::size_t i = 0; i < count; ++i) {
      const double actual = sums[2 * i] / sums[2 * i + 1];
      const double expected = alone_.losses[i];
      if (std::abs(actual - expected) <= tolerance_ * std::abs(expected)) continue;
      EquivalenceResult result =
          found(Mistake::losses,
                fmt::format("a loss of {:.6g} in step {}, as one process has", expected, i + 1),
                fmt::format("{:.6g} as the mean over all samples on {} ranks, with equal gradients",
                            actual, ranks_.size()));
      result.step = static_cast<std::int64_t>(i) + 1;
      return result;
    }
    return {};
  }

  EquivalenceResult explain(const StepDifference& difference) const {
    const auto reducer = static_cast<std::size_t>(difference.reducer);
    const auto step = static_cast<std::size_t>(difference.step) - 1;
    const RecordedReducer::Step* reference =
        reducer < alone().size() && step < alone()[reducer].steps.size()
            ? &alone()[reducer].steps[step]
            : nullptr;
    const std::vector<double> expected =
        from_chief(reference ? reference->reduced.flat() : std::vector<double>());
    const std::vector<double> actual = from_chief(difference.reduced.flat());
    const std::vector<double> own = difference.own.flat();
    const std::vector<double> samples = gather(difference.samples);
    const double alone_samples = gather(reference ? reference->samples : 0).front();
    const bool depends = depends_on_process(reducer);

    const std::string& name = together()[reducer]
                                  .parameters[static_cast<std::size_t>(
                                      gather(static_cast<double>(difference.parameter)).front())]
                                  .name;
    const double relative = gather(difference.difference).front();
    EquivalenceResult result =
        cause(difference.step, expected, actual, own, samples, alone_samples, depends, reducer);
    result.step = difference.step;
    result.parameter = name;
    result.difference = relative;
    result.message.expected =
        fmt::format("expected {} ranks to compute the gradients of one process", ranks_.size());
    result.message.actual =
        relative == 0 ? fmt::format("got {} in step {}", result.message.actual, difference.step)
                      : fmt::format("got a difference of {:.3g} % in {}, step {}: {}",
                                    100 * relative, name, difference.step, result.message.actual);
    return result;
  }

  EquivalenceResult cause(std::int64_t step, const std::vector<double>& expected,
                          const std::vector<double>& actual, const std::vector<double>& own,
                          const std::vector<double>& samples, double alone_samples, bool depends,
                          std::size_t reducer) const {
    const int ranks = ranks_.size();
    const double total = std::accumulate(samples.begin(), samples.end(), 0.0);
    // A loop that does not count samples gives 1 for each pass.
    if (alone_samples != 1 && total != alone_samples) {
      const bool is_whole = step == 1 && total == alone_samples * ranks;
      return likely(
          is_whole ? Mistake::whole_batch : Mistake::last_batch,
          fmt::format("{} samples together and {} alone; {}", total, alone_samples,
                      is_whole ? "each rank takes a whole batch in place of its part"
                               : "an incomplete batch is dropped, padded or divided in another "
                                 "way"));
    }
    const double factor = factor_between(expected, actual, tolerance_).value_or(1);
    if (is_close(factor, ranks) || is_close(factor, 1.0 / ranks)) return scaled_by(factor);
    // The weights that each rank's gradient should have, and those that it has.
    const auto right = weights_of(ranks_, own, expected, tolerance_);
    const auto wrong = weights_of(ranks_, own, actual, tolerance_);
    if (right && wrong) {
      const double scale = std::accumulate(wrong->begin(), wrong->end(), 0.0) /
                           std::accumulate(right->begin(), right->end(), 0.0);
      if (!is_close(scale, 1)) return scaled_by(scale);
      for (std::size_t rank = 0; rank < right->size(); ++rank)
        if (std::abs((*wrong)[rank] - (*right)[rank]) > kClose)
          return likely(
              Mistake::ranks_not_samples,
              fmt::format(
                  "the gradient of rank {} counts as {:.3g} of all, but is of {:.3g} of the "
                  "samples; gradients are averaged over ranks in place of samples: pass "
                  "the number of samples to backward_done()",
                  rank, (*wrong)[rank], (*right)[rank]));
    }
    if (!is_close(factor, 1)) return scaled_by(factor);
    if (step > 1)
      return likely(Mistake::last_batch,
                    "the steps before are equal, so the samples of this batch are others: it is "
                    "dropped, padded or divided in another way");
    if (depends)
      return likely(Mistake::seed,
                    "ranks compute different gradients also alone, so random numbers or the order "
                    "of samples depend on the process: use the same seed on all ranks");
    if (has_batch_statistics(reducer))
      return likely(Mistake::batch_statistics,
                    "no weights of the ranks' gradients explain it; a normalization uses the "
                    "statistics of each rank's own samples");
    return likely(
        Mistake::seed,
        "no weights of the ranks' gradients explain it, so random numbers or the order of "
        "samples depend on the rank: use the same seed on all ranks, and draw for all "
        "samples of the global batch");
  }

  EquivalenceResult scaled_by(double factor) const {
    const int ranks = ranks_.size();
    return likely(
        Mistake::summed,
        is_close(factor, ranks)
            ? fmt::format("{} times as large; gradients are added over ranks in place of averaged",
                          ranks)
        : is_close(factor, 1.0 / ranks)
            ? fmt::format("1/{} as large; gradients are divided by the number of ranks twice",
                          ranks)
            : fmt::format("{:.4g} times as large", factor));
  }

  std::vector<double> from_chief(const std::vector<double>& mine) const {
    return ranks_
        .all_gather(std::span<const double>(mine.data(), ranks_.rank() == 0 ? mine.size() : 0))
        .front();
  }

  // Whether ranks that begin alone with the same parameters compute different gradients.
  bool depends_on_process(std::size_t reducer) const {
    double size = 0;
    if (reducer < alone().size() && !alone()[reducer].steps.empty())
      for (const double value : alone()[reducer].steps.front().reduced.flat())
        size += value * value;
    const std::vector<double> sizes = gather(size);
    const auto hashes = ranks_.all_gather(std::span(alone()[reducer].hashes));
    for (std::size_t rank = 1; rank < sizes.size(); ++rank)
      if (hashes[rank] == hashes.front() &&
          std::abs(sizes[rank] - sizes.front()) > tolerance_ * sizes.front())
        return true;
    return false;
  }

  bool has_batch_statistics(std::size_t reducer) const {
    const RecordedReducer& recorded = alone()[reducer];
    const bool mine =
        ranks_.rank() == 0 && !recorded.steps.empty() &&
        is_scale_invariant(recorded.parameters, recorded.values, recorded.steps.front().reduced);
    return ranks_.any(mine);
  }

  job::Workers& ranks_;
  const Run& alone_;
  const Run& together_;
  double tolerance_;
};

}  // namespace

EquivalenceResult verify_equivalence(job::Workers& workers,
                                     const std::function<StepLosses(job::Workers&)>& loop,
                                     const EquivalenceOptions& options) {
  if (workers.device().kind == device::DeviceKind::gpu)
    throw Error(ErrorCategory::input, kWhere, "expected gradients in host memory",
                fmt::format("got workers on {}", device::to_string(workers.device())));
  Run alone{.steps = StepRecording(options.steps)};
  {
    job::Workers one(workers.session(), allreduce::make_in_process_group(1).front());
    alone.make(one, loop);
  }
  Run together{.steps = StepRecording(options.steps, alone.steps, workers, options.tolerance)};
  together.make(workers, loop);
  if (workers.any(alone.steps.reducers().empty() || together.steps.reducers().empty()))
    throw Error(ErrorCategory::input, kWhere,
                "expected a loop that creates an optimizer with the workers that it is given",
                "it created none");
  return Comparison(workers, alone, together, options.tolerance).result();
}

}  // namespace lockstep::inline v0::interop
