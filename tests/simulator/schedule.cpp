#include "tests/simulator/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/allreduce/algorithm/collective.h"
#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"
#include "lockstep/job/launch/admission.h"
#include "tests/simulator/letters.h"
#include "tests/simulator/node.h"
#include "tests/simulator/saves.h"
#include "tests/simulator/watch.h"
#include "tests/support/simulated_network.h"

namespace lockstep::inline v0::simulator {
namespace {

using allreduce::Call;
using allreduce::Collective;
using allreduce::ElementType;
using allreduce::MessageBuffers;
using allreduce::NetworkOptions;
using allreduce::ReduceOp;
using allreduce::RingOptions;
using allreduce::RingReduction;
using allreduce::SimulatedNetwork;
using allreduce::Tag;
using allreduce::Transport;
using allreduce::Values;

// With many members, few have something to do at an event.
constexpr std::uint64_t kMaxEventsOfEach = 1'000'000;

/// What all members of a set do.
struct Step {
  int set = 0;  // 0: all; 1: some
  Call::Kind kind = Call::Kind::barrier;
  int count = 0;
  int root = 0;
};

enum class Fault { none, call_differs, member_fails, process_ends };

struct Plan {
  int members = 2;
  std::vector<int> some = {};  // the second set; empty: none
  std::vector<Step> steps = {};
  Fault fault = Fault::none;
  int culprit = 0;
  std::size_t faulty_step = 0;
  bool at_once = false;
  bool differs_in_kind = false;
  bool has_late_messages = false;
  bool keeps_values = false;  // in memory that is sent and received in place
  NetworkOptions network = {};
  RingOptions ring = {};
};

template <typename T>
T one_of(SimulatedNetwork& chance, std::initializer_list<T> values) {
  return values.begin()[chance.pick(static_cast<int>(values.size()))];
}

Plan make_plan(std::uint64_t seed) {
  SimulatedNetwork chance(1, seed);
  Plan plan{.members = one_of(chance, {2, 2, 3, 3, 4, 5, 6, 7, 8})};
  if (chance.pick(50) == 0) plan.members = 16;
  for (int member = 0; member < plan.members; ++member)
    if (chance.pick(2) == 0) plan.some.push_back(member);
  if (plan.some.size() < 2 || chance.pick(2) == 0) plan.some.clear();
  std::shuffle(plan.some.begin(), plan.some.end(), chance.random());
  for (int steps = 1 + chance.pick(4); steps > 0; --steps) {
    Step step{.set = plan.some.empty() ? 0 : chance.pick(2),
              .kind = one_of(chance, {Call::Kind::all_reduce, Call::Kind::all_reduce,
                                      Call::Kind::reduce_scatter, Call::Kind::gather_slices,
                                      Call::Kind::broadcast, Call::Kind::all_gather,
                                      Call::Kind::all_to_all, Call::Kind::barrier}),
              .count = one_of(chance, {0, 1, 5, 40, 150, 400, 1000, 1000})};
    const int size = step.set == 0 ? plan.members : static_cast<int>(plan.some.size());
    step.root = chance.pick(size);
    plan.steps.push_back(step);
  }
  plan.fault = one_of(chance, {Fault::none, Fault::none, Fault::none, Fault::call_differs,
                               Fault::member_fails, Fault::process_ends});
  plan.faulty_step = static_cast<std::size_t>(chance.pick(static_cast<int>(plan.steps.size())));
  const bool is_of_some = plan.steps[plan.faulty_step].set == 1;
  plan.culprit =
      is_of_some
          ? plan.some[static_cast<std::size_t>(chance.pick(static_cast<int>(plan.some.size())))]
          : chance.pick(plan.members);
  plan.at_once = chance.pick(2) == 0;
  plan.differs_in_kind =
      plan.steps[plan.faulty_step].kind > Call::Kind::broadcast || chance.pick(2) == 0;
  plan.has_late_messages = chance.pick(3) == 0;
  plan.keeps_values = chance.pick(2) == 0;
  plan.network = {.capacity = one_of<std::size_t>(chance, {64, 300, 4096, 65536}),
                  .max_waiting = one_of<std::size_t>(chance, {0, 0, 8192, 1 << 20}),
                  .generation = 3};
  plan.ring = {.small_bytes = one_of<std::size_t>(chance, {0, 64, 2048}),
               .segment_bytes = one_of<std::size_t>(chance, {64, 128, 512}),
               .segments_in_flight = one_of<std::size_t>(chance, {1, 2, 4})};
  // What is sent before calls are compared can wait, in each of two sets: segments, and calls with
  // the small values beside them.
  const std::size_t ahead = plan.ring.segments_in_flight * (plan.ring.segment_bytes + 128) +
                            plan.ring.small_bytes + 16 * sizeof(Call) + 128;
  plan.network.max_waiting = std::max(plan.network.max_waiting, 2 * ahead);
  return plan;
}

std::string describe(const Plan& plan) {
  constexpr const char* kFaults[] = {"no fault", "a call differs", "a member fails",
                                     "a process ends"};
  std::string text = fmt::format(
      "{} members, some: {}; {} of {} in step {}{}{}; capacity {}, "
      "waiting {}, small {}, segments {} x {};",
      plan.members, fmt::join(plan.some, " "), kFaults[static_cast<int>(plan.fault)], plan.culprit,
      plan.faulty_step, plan.at_once ? " at once" : "",
      plan.has_late_messages ? ", late messages"
      : plan.keeps_values    ? ", kept values"
                             : "",
      plan.network.capacity, plan.network.max_waiting, plan.ring.small_bytes,
      plan.ring.segments_in_flight, plan.ring.segment_bytes);
  for (const Step& step : plan.steps)
    text += fmt::format(" {}{} of {}{}", static_cast<int>(step.kind), step.set == 0 ? "" : " some",
                        step.count, step.root == 0 ? "" : fmt::format(" from {}", step.root));
  return text;
}

std::int64_t value_of(int member, std::size_t element, std::size_t step) {
  return static_cast<std::int64_t>(element) * 31 + std::int64_t{member} * 1009 +
         static_cast<std::int64_t>(step);
}

std::vector<std::byte> bytes_for(int from, int to, const Step& step, std::size_t number) {
  const int size = step.count * ((from * 3 + to * 5) % 4);
  return std::vector<std::byte>(static_cast<std::size_t>(size),
                                static_cast<std::byte>(from * 16 + to + static_cast<int>(number)));
}

/// A process: its part in each set, and the step that it is in.
class Member {
 public:
  Member(const Plan& plan, SimulatedNetwork& network, int rank) : plan_(plan), rank_(rank) {
    transports_.push_back(network.transport(rank));
    transports_.push_back(plan.some.empty() ? nullptr : transports_[0]->subset(plan.some));
    for (const auto& transport : transports_)
      sets_.push_back(transport ? std::make_unique<Collective>(*transport, plan.ring) : nullptr);
  }

  bool is_over() const { return has_ended_ || failed_ || step_ == plan_.steps.size(); }
  bool has_ended() const { return has_ended_; }
  void end() { has_ended_ = true; }
  const std::optional<ErrorMessage>& failure() const { return failed_; }
  std::size_t step() const { return step_; }
  bool is_inside() const { return is_started_; }

  /// One event of this process. Throws std::string for a promise that is broken.
  void advance(double now, bool looks_at_others) {
    while (!is_over() && !set()) ++step_;
    if (is_over()) return;
    try {
      if (!is_started_) {
        start(now);
      } else {
        set()->advance(now);
        if (looks_at_others) set()->check_others();
        if (set()->is_done()) finish_part();
      }
    } catch (const Error&) {
      // As Session::guard(): the other groups of this process fail too.
      failed_ = set()->failure();
      if (!failed_) throw std::string("an error that the group does not know");
      for (const auto& one : sets_)
        if (one) one->broadcast_failure(*failed_);
    }
  }

 private:
  const Step& current() const { return plan_.steps[step_]; }
  Collective* set() { return sets_[static_cast<std::size_t>(current().set)].get(); }
  Transport& transport() { return *transports_[static_cast<std::size_t>(current().set)]; }
  bool is_faulty(Fault fault) const {
    return plan_.fault == fault && plan_.culprit == rank_ && plan_.faulty_step == step_;
  }
  int size() { return transport().size(); }
  int index() { return transport().rank(); }

  Values values() {
    return {reinterpret_cast<std::byte*>(values_.data()), values_.size(), ElementType::int64};
  }

  void make_values(std::size_t count) {
    values_ = {};
    kept_ = {};
    copied_.assign(plan_.keeps_values ? 0 : count, 0);
    if (plan_.keeps_values)
      kept_ = set()->buffers().keep(
          device::HostAllocator().allocate(std::max<std::size_t>(count, 1) * sizeof(std::int64_t)));
    values_ = plan_.keeps_values ? kept_.as<std::int64_t>().first(count) : std::span(copied_);
  }

  void start(double now) {
    is_started_ = true;
    has_moved_ = false;
    const Step& step = current();
    const bool differs = is_faulty(Fault::call_differs);
    if (is_faulty(Fault::member_fails)) {
      set()->broadcast_failure(
          {"all_reduce", "expected all members", fmt::format("member {} left", rank_)});
      return set()->throw_if_failed();
    }
    set()->begin_operation();
    make_values(static_cast<std::size_t>(step.count) + (differs ? 1 : 0));
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = value_of(index(), i, step_);
    sent_.clear();
    if (differs && plan_.differs_in_kind) return set()->start(Call::any(true), now);
    switch (step.kind) {
      case Call::Kind::all_reduce:
        return set()->start_all_reduce(values(), ReduceOp::sum, now);
      case Call::Kind::reduce_scatter:
        return set()->start_reduce_scatter(values(), ReduceOp::sum, now);
      case Call::Kind::gather_slices:
        return set()->start_gather_slices(values(), now);
      case Call::Kind::broadcast:
        return set()->start(Call::broadcast(values_.size_bytes(), step.root), now);
      default:
        break;
    }
    if (step.kind == Call::Kind::barrier) return set()->start(Call::barrier(), now);
    for (int other = 0; other < size(); ++other)
      sent_.push_back(bytes_for(index(), other, step, step_));
    parts_.assign(sent_.begin(), sent_.end());
    if (step.kind == Call::Kind::all_gather)
      return set()->start(Call::all_gather(sent_[0].size()), now);
    std::size_t total = 0;
    for (const auto& part : sent_) total += part.size();
    set()->start(Call::all_to_all(total), now);
  }

  /// After the calls: the part that moves bytes, if that is not concurrent; then the check.
  void finish_part() {
    const Step& step = current();
    if (plan_.fault == Fault::call_differs && plan_.faulty_step == step_)
      throw std::string("calls differ, and no error was reported");
    if (!has_moved_) {
      has_moved_ = true;
      if (step.kind == Call::Kind::broadcast) {
        const Values all = values();
        return set()->start_broadcast({all.data, bytes_of(all)}, step.root);
      }
      if (step.kind == Call::Kind::all_gather)
        return set()->start_all_gather(sent_[0], std::vector<Call>(set()->calls()));
      if (step.kind == Call::Kind::all_to_all) return set()->start_all_to_all(parts_);
    }
    check();
    set()->complete_operation();
    is_started_ = false;
    ++step_;
  }

  void expect(bool is_right, const char* what) {
    if (!is_right) throw fmt::format("wrong {} on member {} in step {}", what, rank_, step_);
  }

  void check() {
    const Step& step = current();
    const auto sum_of = [&](std::size_t element) {
      std::int64_t sum = 0;
      for (int member = 0; member < size(); ++member) sum += value_of(member, element, step_);
      return sum;
    };
    if (step.kind == Call::Kind::all_reduce || step.kind == Call::Kind::reduce_scatter) {
      const allreduce::Slice mine =
          step.kind == Call::Kind::all_reduce
              ? allreduce::Slice{0, values_.size()}
              : allreduce::slice_of(values_.size(), ElementType::int64, size(), index());
      for (std::size_t i = mine.begin; i < mine.end; ++i) expect(values_[i] == sum_of(i), "sum");
    } else if (step.kind == Call::Kind::gather_slices) {
      for (int member = 0; member < size(); ++member) {
        const auto slice = allreduce::slice_of(values_.size(), ElementType::int64, size(), member);
        for (std::size_t i = slice.begin; i < slice.end; ++i)
          expect(values_[i] == value_of(member, i, step_), "gathered slice");
      }
    } else if (step.kind == Call::Kind::broadcast) {
      for (std::size_t i = 0; i < values_.size(); ++i)
        expect(values_[i] == value_of(step.root, i, step_), "broadcast");
    } else if (step.kind == Call::Kind::all_gather || step.kind == Call::Kind::all_to_all) {
      const auto received = set()->take_received();
      for (int member = 0; member < size(); ++member)
        expect(
            received[static_cast<std::size_t>(member)] ==
                bytes_for(member, step.kind == Call::Kind::all_gather ? 0 : index(), step, step_),
            "bytes of another member");
    }
  }

  const Plan& plan_;
  int rank_;
  std::vector<std::shared_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Collective>> sets_;
  std::size_t step_ = 0;
  bool is_started_ = false;
  bool has_moved_ = false;
  bool has_ended_ = false;
  std::optional<ErrorMessage> failed_;
  std::span<std::int64_t> values_;  // in one of these
  std::vector<std::int64_t> copied_;
  device::Buffer kept_;
  std::vector<std::vector<std::byte>> sent_;
  std::vector<std::span<const std::byte>> parts_;
};

class Run {
 public:
  explicit Run(std::uint64_t seed)
      : plan_(make_plan(seed)), network_(plan_.members, seed + 1, plan_.network) {
    join();
    for (int rank = 0; rank < plan_.members; ++rank)
      members_.push_back(std::make_unique<Member>(plan_, network_, rank));
    if (plan_.has_late_messages) send_late_messages();
  }

  Outcome finish() {
    try {
      while (!is_over()) {
        if (outcome_.events == kMaxEventsOfEach * static_cast<std::uint64_t>(plan_.members))
          throw std::string("it does not end");
        ++outcome_.events;
        event();
      }
      check_ends();
    } catch (const std::string& failure) {
      outcome_.failure = failure;
    } catch (const std::exception& error) {
      outcome_.failure = error.what();
    }
    note(outcome_.failure.size());
    if (!outcome_.failure.empty()) {
      for (const auto& member : members_)
        outcome_.failure += fmt::format(", {}{}", member->step(), member->is_over() ? "" : "…");
      outcome_.failure += "; " + describe(plan_);
    }
    return outcome_;
  }

 private:
  /// The processes join in any order; some come twice.
  void join() {
    const auto request = [&](int rank) {
      return job::JoinRequest{.version = "1", .rank = rank, .size = plan_.members, .host = "h"};
    };
    job::Admission admission(request(0));
    std::vector<bool> joined(static_cast<std::size_t>(plan_.members));
    joined[0] = true;
    while (!admission.is_complete()) {
      const int rank = network_.pick(plan_.members);
      const bool is_admitted = admission.admit(request(rank)).empty();
      if (is_admitted == joined[static_cast<std::size_t>(rank)])
        outcome_.failure = fmt::format("rank {} joins {}", rank, is_admitted ? "twice" : "never");
      joined[static_cast<std::size_t>(rank)] = true;
    }
  }

  /// Messages from before the job changed its members, to sets and tags that are used now.
  void send_late_messages() {
    for (int from = 0; from < plan_.members; ++from)
      for (int to = 0; to < plan_.members; ++to)
        if (from != to && network_.pick(2) == 0)
          network_.endpoint(from).send_late(to, 0, network_.pick(2) == 0 ? Tag::call : Tag::values,
                                            late_, plan_.network.generation - 1);
  }

  void event() {
    now_ += 1e-6 * (1 + network_.pick(10));
    const int rank = network_.pick(plan_.members);
    Member& member = *members_[static_cast<std::size_t>(rank)];
    if (network_.pick(3) != 0) {
      network_.step();
    } else {
      member.advance(now_, network_.pick(4) == 0);
      note(static_cast<std::uint64_t>(rank) << 32 | member.step());
    }
    Member& culprit = *members_[static_cast<std::size_t>(plan_.culprit)];
    if (plan_.fault == Fault::process_ends && !culprit.is_over() &&
        culprit.step() == plan_.faulty_step && culprit.is_inside() && network_.pick(20) == 0) {
      culprit.end();
      network_.end(plan_.culprit, plan_.at_once);
    }
    for (int other = 0; other < plan_.members; ++other)
      if (network_.endpoint(rank).waiting(other) > plan_.network.max_waiting)
        throw std::string("more bytes wait than the limit allows");
  }

  bool is_over() const {
    return !outcome_.failure.empty() ||
           std::ranges::all_of(members_, [](const auto& member) { return member->is_over(); });
  }

  /// Everybody who failed names the same cause.
  void check_ends() {
    if (!outcome_.failure.empty()) return;
    std::optional<std::string> cause;
    int failed = 0;
    for (const auto& member : members_) {
      if (!member->failure()) continue;
      ++failed;
      const std::string text = Error(ErrorCategory::communication, *member->failure()).what();
      if (cause && *cause != text) throw fmt::format("two causes: {} and {}", *cause, text);
      cause = text;
      if ((plan_.fault == Fault::member_fails || plan_.fault == Fault::call_differs) &&
          member->step() < plan_.faulty_step)
        throw fmt::format("step {} failed, which the member that failed had completed",
                          member->step());
    }
    const bool has_ended =
        std::ranges::any_of(members_, [](const auto& member) { return member->has_ended(); });
    if (plan_.fault == Fault::none && failed > 0) throw "failed without a fault: " + *cause;
    if (plan_.fault == Fault::call_differs && failed == 0)
      throw std::string("nobody found that calls differ");
    if (plan_.fault == Fault::member_fails && failed == 0)
      throw std::string("nobody learned that a member failed");
    if (has_ended && cause &&
        cause->find(fmt::format("expected rank {} to stay", plan_.culprit)) == std::string::npos)
      throw "the wrong cause of a process that ended: " + *cause;
  }

  void note(std::uint64_t what) {
    const std::uint64_t both[] = {outcome_.digest, what};
    outcome_.digest = XXH3_64bits(both, sizeof(both));
  }

  Plan plan_;
  SimulatedNetwork network_;
  std::vector<std::byte> late_ = std::vector<std::byte>(24, std::byte{9});
  std::vector<std::unique_ptr<Member>> members_;
  Outcome outcome_;
  double now_ = 0;
};

}  // namespace

Outcome run_schedule(std::uint64_t seed) {
  if (seed % 4 == 2) return run_watch(seed);
  if (seed % 8 == 3) return run_failures(seed);
  if (seed % 8 == 7) return run_node(seed);
  if (seed % 16 == 9) return run_letters(seed);
  if (seed % 32 == 5) return run_saves(seed);
  return Run(seed).finish();
}

}  // namespace lockstep::inline v0::simulator
