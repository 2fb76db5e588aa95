#include "tests/simulator/saves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/allreduce/algorithm/message_group.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/checkpoint/directory.h"
#include "tests/simulator/disk.h"
#include "tests/simulator/fibre.h"
#include "tests/support/simulated_network.h"

namespace lockstep::inline v0::simulator {
namespace {

using allreduce::SimulatedNetwork;
using checkpoint::CheckpointDirectory;
using checkpoint::CheckpointOptions;
using checkpoint::VerifyCheckpoint;

constexpr std::uint64_t kMaxEvents = 1'000'000;
// A group leaks the memory of messages in flight after a failure: little of it here.
constexpr allreduce::RingOptions kSmall{.small_bytes = 2048, .segment_bytes = 1024};
constexpr std::size_t kParameters = 16;  // without padding

/// Thrown in a process that has ended; nobody catches it as an error.
struct HasEnded {};

struct JobPlan {
  int ranks = 2;
  CheckpointOptions options = {};
  int saves = 0;
  int unhealthy = -1;  // this save, if there are as many
  int different = -1;  // in this save, `culprit` has another replica
  int culprit = 0;
  DiskFault fault = DiskFault::none;
  int change = 0;
  int error = EIO;
  bool at_once = false;
};

/// A rank: the arrays of its replica, and what became of its calls.
struct Rank {
  std::vector<float> parameters = std::vector<float>(kParameters);
  std::vector<float> momentum = std::vector<float>(kParameters);
  std::int64_t restored = 0;               // the step; 0: none
  std::vector<std::string> outcomes = {};  // after restoring and after each save; empty: no error
  bool has_ended = false;

  void set(std::int64_t step) {
    for (std::size_t i = 0; i < kParameters; ++i) {
      parameters[i] = static_cast<float>(step * 100 + static_cast<std::int64_t>(i));
      momentum[i] = -parameters[i];
    }
  }
};

class SavingJob {
 public:
  SavingJob(JobPlan plan, Disk& disk, std::uint64_t seed)
      : plan_(std::move(plan)),
        disk_(disk),
        network_(plan_.ranks, seed, {.capacity = std::size_t{1} << 20, .moves_all = true}),
        ranks_(static_cast<std::size_t>(plan_.ranks)) {
    model::ParameterInfo weights;
    weights.name = "w";
    weights.shape = {kParameters};
    table_ = model::ParameterTable({weights});
  }

  const JobPlan& plan() const { return plan_; }
  const std::vector<Rank>& ranks() const { return ranks_; }

  /// Runs all ranks to their ends; returns the number of events.
  std::uint64_t run() {
    disk_.plan(plan_.fault, plan_.change, plan_.error);
    std::vector<std::unique_ptr<Fibre>> fibres;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      network_.endpoint(rank).on_move = [this, rank] {
        Fibre::pause();
        if (disk_.has_ended(rank)) throw HasEnded();
      };
      fibres.push_back(std::make_unique<Fibre>([this, rank] { live(rank); }));
    }
    std::uint64_t events = 0;
    while (!std::ranges::all_of(fibres, [](const auto& fibre) { return fibre->is_over(); })) {
      if (++events == kMaxEvents) throw std::string("it does not end");
      for (int i = 0; i < plan_.ranks; ++i) network_.step();
      const int rank = network_.pick(plan_.ranks);
      Fibre& fibre = *fibres[static_cast<std::size_t>(rank)];
      if (fibre.is_over()) continue;
      disk_.set_process(rank);
      fibre.go_on();
      if (fibre.is_over())
        network_.end(rank, ranks_[static_cast<std::size_t>(rank)].has_ended && plan_.at_once);
    }
    return events;
  }

 private:
  void live(int number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    try {
      train(number, rank);
    } catch (const HasEnded&) {
      rank.has_ended = true;
    } catch (const std::exception& error) {
      rank.has_ended = disk_.has_ended(number);
      if (!rank.has_ended) rank.outcomes.emplace_back(error.what());
    }
  }

  void train(int number, Rank& rank) {
    const checkpoint::ReplicaArrays arrays{.parameter_table = &table_,
                                           .parameters = rank.parameters,
                                           .buffers = {},
                                           .slots = {{"momentum", rank.momentum}}};
    CheckpointDirectory directory(plan_.options, allreduce::Communicator(allreduce::make_ring(
                                                     network_.transport(number), kSmall)));
    directory.prepare(checkpoint::checkpoint_bytes(arrays));
    if (const auto restored = directory.restore(arrays)) {
      rank.restored = restored->state.step;
      Rank expected;
      expected.set(rank.restored);
      if (rank.parameters != expected.parameters || rank.momentum != expected.momentum)
        throw std::runtime_error("other values than those that were saved");
    }
    rank.outcomes.emplace_back();
    for (int i = 0; i < plan_.saves; ++i) {
      checkpoint::TrainingState state;
      state.step = rank.restored + 1 + i;
      rank.set(state.step);
      if (i == plan_.different && number == plan_.culprit) rank.parameters[1] += 0.5F;
      try {
        directory.save(arrays, state, {.healthy = i != plan_.unhealthy});
        rank.outcomes.emplace_back();
      } catch (const checkpoint::SaveError& error) {
        if (disk_.has_ended(number)) throw HasEnded();
        rank.outcomes.emplace_back(error.what());
      }
    }
  }

  JobPlan plan_;
  Disk& disk_;
  SimulatedNetwork network_;
  model::ParameterTable table_;
  std::vector<Rank> ranks_;
};

/// The jobs of one training, and what they may not lose.
class Training {
 public:
  explicit Training(std::uint64_t seed) : random_(seed) {
    std::filesystem::create_directory(disk_.folder() / "tmp");
    ::setenv("TMPDIR", (disk_.folder() / "tmp").c_str(), 1);
  }

  Outcome finish() {
    const int jobs = 2 + pick(2);
    for (int job = 0; job < jobs && outcome_.failure.empty(); ++job) {
      SavingJob saving(make_plan(job + 1 == jobs), disk_, random_());
      try {
        outcome_.events += saving.run();
        check(saving);
      } catch (const std::string& failure) {
        outcome_.failure = describe(job, saving, failure);
      }
      disk_.restart(random_);
    }
    return outcome_;
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  JobPlan make_plan(bool is_last) {
    JobPlan plan{.ranks = 2 + pick(3), .saves = is_last ? 1 : 1 + pick(3)};
    if (pick(40) == 0) plan.ranks = 16;
    plan.options.directory = disk_.folder() / "run";
    plan.options.keep = 1 + pick(3);
    plan.options.verify = VerifyCheckpoint{pick(4)};
    plan.options.lock_patience = {};
    if (is_last) return plan;
    plan.unhealthy = pick(6);
    if (pick(4) == 0 && plan.options.verify != VerifyCheckpoint::none) {
      plan.different = pick(plan.saves);
      plan.culprit = pick(plan.ranks);
      return plan;
    }
    plan.fault = DiskFault{pick(4)};
    plan.change = 1 + pick(60 * plan.saves);
    plan.error = pick(2) == 0 ? EIO : ENOSPC;
    plan.at_once = pick(2) == 0;
    return plan;
  }

  void check(const SavingJob& job) {
    const JobPlan& plan = job.plan();
    const bool all_end_well = plan.fault == DiskFault::none || plan.fault == DiskFault::error;
    const std::vector<Rank>& ranks = job.ranks();
    std::int64_t restored = 0;
    std::size_t most = 0;
    for (const Rank& rank : ranks) {
      restored = std::max(restored, rank.restored);
      most = std::max(most, rank.outcomes.size());
      if (all_end_well && rank.outcomes.size() != ranks[0].outcomes.size())
        throw std::string("ranks do not end together");
    }
    int failures = 0;
    for (std::size_t call = 0; call < most; ++call) {
      std::set<std::string> outcomes;
      for (const Rank& rank : ranks)
        if (call < rank.outcomes.size()) outcomes.insert(rank.outcomes[call]);
      const bool is_done = outcomes.contains("");
      failures += is_done ? 0 : 1;
      if (outcomes.size() > 1 && all_end_well)
        throw fmt::format("two outcomes: {}", fmt::join(outcomes, "; "));
      check_call(plan, static_cast<int>(call) - 1, is_done, *outcomes.begin());
      note(call, is_done);
      if (is_done && call == 0) check_restored(ranks, restored);
      if (is_done && call > 0 && static_cast<int>(call) != plan.unhealthy + 1)
        healthy_ = std::max(healthy_, restored + static_cast<std::int64_t>(call));
      if (is_done && static_cast<int>(call) == plan.unhealthy + 1)
        unhealthy_.insert(restored + static_cast<std::int64_t>(call));
    }
    // A save that was not heard of may have replaced a checkpoint that was not healthy.
    for (int save = 0; save < plan.saves; ++save)
      if (save != plan.unhealthy) unhealthy_.erase(restored + 1 + save);
    if (failures > (plan.fault == DiskFault::none && plan.different < 0 ? 0 : 1))
      throw std::string("more failed than the fault explains");
    note(static_cast<std::uint64_t>(restored), most);
  }

  /// Call -1 restores.
  static void check_call(const JobPlan& plan, int save, bool is_done, const std::string& outcome) {
    if (save < 0 || save != plan.different) return;
    const std::string named = fmt::format("rank {} ", plan.culprit == 0 ? 1 : plan.culprit);
    if (is_done || outcome.find(named) == std::string::npos)
      throw fmt::format("rank {} has another replica: {}", plan.culprit, outcome);
  }

  void check_restored(const std::vector<Rank>& ranks, std::int64_t restored) const {
    for (const Rank& rank : ranks)
      if (!rank.outcomes.empty() && rank.outcomes[0].empty() && rank.restored != restored)
        throw std::string("ranks restored different steps");
    if (restored < healthy_ || (restored == 0 && !unhealthy_.empty()))
      throw fmt::format("step {} was saved, and step {} is restored", healthy_, restored);
    if (healthy_ > 0 && unhealthy_.contains(restored))
      throw fmt::format("step {}, which is not healthy, is restored", restored);
  }

  std::string describe(int number, const SavingJob& job, const std::string& failure) const {
    constexpr const char* kFaults[] = {"no fault", "an error", "a process ends", "the power fails"};
    const JobPlan& plan = job.plan();
    std::string text = fmt::format(
        "{}; job {} of {} ranks, {} saves, keeps {}, verifies {}, {} at change {}, {} differs in "
        "{};",
        failure, number, plan.ranks, plan.saves, plan.options.keep,
        static_cast<int>(plan.options.verify), kFaults[static_cast<int>(plan.fault)], plan.change,
        plan.culprit, plan.different);
    for (const Rank& rank : job.ranks())
      text += fmt::format("\n  restored {}{}: {}", rank.restored, rank.has_ended ? ", ended" : "",
                          fmt::join(rank.outcomes, " | "));
    return text;
  }

  void note(std::uint64_t what, std::uint64_t more) {
    const std::uint64_t all[] = {outcome_.digest, what, more};
    outcome_.digest = XXH3_64bits(all, sizeof(all));
  }

  std::mt19937_64 random_;
  Disk disk_;
  std::int64_t healthy_ = 0;  // the last healthy step that was saved
  std::set<std::int64_t> unhealthy_;
  Outcome outcome_;
};

}  // namespace

Outcome run_saves(std::uint64_t seed) { return Training(seed).finish(); }

}  // namespace lockstep::inline v0::simulator
