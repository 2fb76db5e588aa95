#include "lockstep/strategy/replica/step_breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "lockstep/allreduce/buckets/straggler.h"

namespace lockstep::inline v0::strategy {
namespace {

using Limits = VerdictLimits;

constexpr std::size_t kColumns = 79;  // width of a line; the last column of 80 stays free

struct Unit {
  const char* name;
  double scale;
  int decimals;
};

Unit unit_of(double seconds) {
  if (seconds >= 1) return {"s", 1, 2};
  if (seconds >= 0.1) return {"ms", 1e3, 0};
  if (seconds >= 1e-3) return {"ms", 1e3, 1};
  return {"us", 1e6, 0};
}

std::string digits_of(double seconds, const Unit& unit) {
  return fmt::format("{:.{}f}", seconds * unit.scale, unit.decimals);
}

std::string duration_text_of(double seconds) {
  const Unit unit = unit_of(seconds);
  return fmt::format("{} {}", digits_of(seconds, unit), unit.name);
}

std::string percent_text(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// Truncates `text` between words.
std::string cut_to_line(std::string text) {
  if (text.size() <= kColumns) return text;
  const std::size_t end = text.rfind(' ', kColumns);
  text.resize(end == std::string::npos ? kColumns : end);
  while (!text.empty() && (text.back() == ';' || text.back() == ',')) text.pop_back();
  return text;
}

/// Returns the median; the lower one of the two middle values of an even number.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Computes remedies from the mean step.
class Judge {
 public:
  Judge(const StepSums& sums, const TrainingFacts& facts)
      : facts_(facts),
        sums_(sums),
        steps_(static_cast<double>(sums.steps)),
        step_(sums.seconds / steps_),
        total_(step_.total()) {
    if (sums.busy.size() < 2) return;
    allreduce::StragglerReport report(sums.busy.size());
    report.add(sums.busy, static_cast<std::size_t>(sums.steps));
    stragglers_ = report.stragglers();
  }

  Verdict verdict() const {
    if (step_.other > (1 - Limits::kCoverage) * total_)
      return {.bound_by = "",
              .text = cut_to_line(
                  fmt::format("{} of the time is between steps: callbacks, or too short steps",
                              percent_text(share(step_.other))))};
    struct Candidate {
      const char* bound_by;
      double seconds;
      double threshold;
      std::string (Judge::*remedy)() const;
    };
    const bool has_straggler = !stragglers_.empty();
    const std::array<Candidate, 5> candidates = {
        {{"straggler", has_straggler ? stragglers_.front().wait : step_.waiting,
          has_straggler ? Limits::kShare : Limits::kLargeShare, &Judge::straggler_remedy},
         {"input", common_input(), Limits::kShare, &Judge::input_remedy},
         {"communication", step_.communication, Limits::kShare, &Judge::communication_remedy},
         {"memory", step_.update, Limits::kLargeShare, &Judge::memory_remedy},
         {"checkpoint", step_.checkpoint, Limits::kShare, &Judge::checkpoint_remedy}}};
    const Candidate* largest = nullptr;
    for (const Candidate& one : candidates)
      if (one.seconds >= one.threshold * total_ &&
          (largest == nullptr || one.seconds > largest->seconds))
        largest = &one;
    const char* const bound_by = largest == nullptr ? "compute" : largest->bound_by;
    const std::string remedy = largest == nullptr ? compute_remedy() : (this->*largest->remedy)();
    return {.bound_by = bound_by,
            .text = cut_to_line(fmt::format("bound by {}: {}", bound_by, remedy))};
  }

 private:
  double share(double seconds) const { return seconds / total_; }
  double batch() const { return static_cast<double>(facts_.per_replica_batch); }

  /// Time that also the faster half of the replicas waits for input.
  double common_input() const {
    if (sums_.busy.size() < 2) return step_.input;
    std::vector<double> inputs;
    for (const allreduce::BusySeconds& busy : sums_.busy) inputs.push_back(busy.input / steps_);
    return lower_median(std::move(inputs));
  }

  // T threads read the input of a step in the duration of a step. To read it in the rest of a step,
  // T * step / rest are required. Computing threads are limited to the number of processors.
  std::string input_remedy() const {
    if (sums_.data_workers == 0) return "read ahead, with --prefetch 2 or more";
    const double rest = std::max(total_ - step_.input, 0.01 * total_);
    const auto needed = [&](double threads) {
      return static_cast<std::int64_t>(std::ceil(threads * total_ / rest - 1e-6));
    };
    const double computing = std::min<double>(sums_.data_workers, facts_.processors);
    const std::int64_t threads =
        std::max<std::int64_t>(needed(sums_.data_workers), sums_.data_workers + 1);
    // Data threads that compute for less than half of the time wait for storage, unless free
    // processors would let them compute for longer.
    const double half = 0.5 * computing * sums_.seconds.total();
    if (sums_.data_processor_seconds > 0 && sums_.data_processor_seconds < half) {
      if (sums_.data_processor_seconds >= half * (1 - sums_.queued_share))
        return "data threads wait for busy processors; prepare the data once";
      return fmt::format("slow storage; --data-threads {} would hide it", threads);
    }
    const std::int64_t processors = needed(computing);
    if (static_cast<double>(processors) > facts_.processors)
      return fmt::format("hiding it takes {} processors, not {:.2g}; prepare the data once",
                         processors, facts_.processors);
    const std::int64_t more = threads - sums_.data_workers;
    return fmt::format("{} more data thread{} would hide it (--data-threads {})", more,
                       more == 1 ? "" : "s", threads);
  }

  /// Returns the per-replica batch with which a constant part of `seconds` is kGoal of a step;
  /// nullopt if that batch would be far larger.
  std::optional<std::int64_t> batch_to_reduce(double seconds) const {
    if (step_.compute <= 0) return std::nullopt;
    const double fixed = step_.communication + step_.update + step_.other;
    const double factor = (seconds / Limits::kGoal - fixed) / step_.compute;
    const double wanted = std::max(1.0, factor) * batch();
    constexpr double kSmallBatch = 1024;
    constexpr double kLargestFactor = 8;
    if (wanted > std::max(kLargestFactor * batch(), kSmallBatch)) return std::nullopt;
    const auto rounded = std::bit_ceil(static_cast<std::uint64_t>(std::ceil(wanted)));
    return std::max(static_cast<std::int64_t>(rounded), facts_.per_replica_batch + 1);
  }

  std::string communication_remedy() const {
    if (const auto batch = batch_to_reduce(step_.communication))
      return fmt::format("a per-replica batch of {} would cut it to {}", *batch,
                         percent_text(Limits::kGoal));
    constexpr std::int64_t kManyBytes = std::int64_t{1} << 20;
    if (facts_.gradient_bytes >= kManyBytes && !facts_.has_narrow_gradients)
      return fmt::format("--comm-dtype bfloat16 would halve {:.1f} MB a step",
                         1e-6 * static_cast<double>(facts_.gradient_bytes));
    return fmt::format("{:.3g} MB take {}; a faster link or fewer replicas",
                       1e-6 * static_cast<double>(facts_.gradient_bytes),
                       duration_text_of(step_.communication));
  }

  std::string memory_remedy() const {
    if (const auto batch = batch_to_reduce(step_.update))
      return fmt::format("a per-replica batch of {} would cut the update to {}", *batch,
                         percent_text(Limits::kGoal));
    return fmt::format("the update takes {}; {}", percent_text(share(step_.update)),
                       facts_.has_optimizer_state ? "sgd, with less state, moves fewer bytes"
                                                  : "a larger batch makes it rarer");
  }

  std::string checkpoint_remedy() const {
    constexpr double kFew = 0.05;
    const double factor = step_.checkpoint * (1 - kFew) / (kFew * (total_ - step_.checkpoint));
    return fmt::format("saving {:.0f} times less often (--save-every) cuts it to {}",
                       std::ceil(std::min(factor, 1e6)), percent_text(kFew));
  }

  std::string straggler_remedy() const {
    if (stragglers_.empty()) return "replicas wait in turn; they share processors";
    const allreduce::Straggler& slowest = stragglers_.front();
    const std::string name = slowest.replica < facts_.names.size()
                                 ? facts_.names[slowest.replica]
                                 : fmt::format("replica {}", slowest.replica);
    if (std::string_view(slowest.phase) == "input")
      return fmt::format("{} waits {} for its input, others {}", name,
                         duration_text_of(slowest.seconds), duration_text_of(slowest.median));
    // Processor shares of this replica's thread during computation, and of the others. A thread
    // with an equal share that computes for longer computes more slowly.
    const double mine = processor_share(slowest.replica);
    std::vector<double> shares;
    for (std::size_t i = 0; i < sums_.busy.size(); ++i)
      if (i != slowest.replica) shares.push_back(processor_share(i));
    const double others = lower_median(std::move(shares));
    constexpr double kLess = 0.85;
    if (mine > 0 && mine < kLess * others)
      return fmt::format("{} has {} of a core, others {}: free its cores", name, percent_text(mine),
                         percent_text(others));
    if (mine > 0)
      return fmt::format("{} computes at {} of others: slow clock or memory", name,
                         percent_text(slowest.median / slowest.seconds));
    return fmt::format("{} computes {}, others {}", name, duration_text_of(slowest.seconds),
                       duration_text_of(slowest.median));
  }

  double processor_share(std::size_t replica) const {
    const allreduce::BusySeconds& busy = sums_.busy[replica];
    return busy.compute > 0 ? std::min(1.0, busy.processor / busy.compute) : 0;
  }

  std::string compute_remedy() const {
    if (facts_.world_size == 1) return "more replicas, or a faster device, would shorten it";
    return fmt::format("more replicas would help; communication and waiting take {}",
                       percent_text(share(step_.communication + step_.waiting)));
  }

  const TrainingFacts& facts_;
  const StepSums& sums_;
  double steps_;
  StepBreakdown step_;
  double total_;
  std::vector<allreduce::Straggler> stragglers_;
};

}  // namespace

double StepBreakdown::total() const {
  double seconds = 0;
  for (const StepPart& part : kStepParts) seconds += this->*part.member;
  return seconds;
}

StepBreakdown& StepBreakdown::operator+=(const StepBreakdown& more) {
  for (const StepPart& part : kStepParts) this->*part.member += more.*part.member;
  return *this;
}

StepBreakdown StepBreakdown::operator/(double divisor) const {
  StepBreakdown result;
  for (const StepPart& part : kStepParts) result.*part.member = this->*part.member / divisor;
  return result;
}

std::string to_text(const StepBreakdown& step, std::size_t columns) {
  const Unit unit = unit_of(step.total());
  StepBreakdown shown = step;
  for (;;) {
    std::string line;
    const StepPart* smallest = nullptr;
    for (const StepPart& part : kStepParts) {
      const double seconds = shown.*part.member;
      const std::string text = digits_of(seconds, unit);
      if (text == digits_of(0, unit)) continue;
      line += fmt::format("{}{} {}", line.empty() ? " = " : " + ", part.name, text);
      if (part.member != &StepBreakdown::other &&
          (smallest == nullptr || seconds < shown.*smallest->member))
        smallest = &part;
    }
    line = fmt::format("step {} {}{}", digits_of(step.total(), unit), unit.name, line);
    if (line.size() <= columns || smallest == nullptr) return line.substr(0, columns);
    shown.other += std::exchange(shown.*smallest->member, 0);
  }
}

std::optional<Verdict> judge(const StepSums& sums, const TrainingFacts& facts) {
  if (sums.steps < Limits::kLeastSteps || sums.seconds.total() < Limits::kLeastSeconds)
    return std::nullopt;
  return Judge(sums, facts).verdict();
}

void StepClock::end_step(StepBreakdown& step) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - last_).count() - excluded_;
  last_ = now;
  step.checkpoint = checkpoint_;
  step.other = 0;
  step.other = std::max(0.0, seconds - step.total());
  checkpoint_ = excluded_ = 0;
}

}  // namespace lockstep::inline v0::strategy
