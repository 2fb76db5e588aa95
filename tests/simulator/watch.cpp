#include "tests/simulator/watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/watchdog/coordinator.h"
#include "lockstep/allreduce/watchdog/member.h"
#include "lockstep/allreduce/watchdog/progress.h"
#include "lockstep/job/failure_comparison.h"
#include "tests/support/simulated_network.h"

namespace lockstep::inline v0::simulator {
namespace {

using allreduce::Activity;
using allreduce::Agent;
using allreduce::Coordinator;
using allreduce::Finding;
using allreduce::Invitation;
using allreduce::Phase;
using allreduce::ReplicaView;
using net::Frame;

constexpr double kTick = 0.25;  // seconds between two looks of a process
constexpr double kStall = 6;
constexpr double kHeartbeat = 1;
constexpr double kNever = 1e9;

/// Frames on their way from one process to another, in order.
struct Wire {
  std::deque<std::pair<double, Frame>> frames;  // with the time of arrival
  double last_arrival = 0;
  bool has_ended = false;  // the sender has ended
  bool is_cut = false;     // nothing arrives any more
};

/// The network of a watched job: its clock, and how long frames take.
struct WatchNetwork {
  std::mt19937_64 random;
  double now = 0;
  double longest_delay = 0;

  int pick(int below) { return static_cast<int>(random() % static_cast<std::uint64_t>(below)); }
  double uniform(double most) { return most * pick(1000) / 1000; }
};

class SimulatedChannel final : public net::FrameChannel {
 public:
  SimulatedChannel(WatchNetwork& network, std::shared_ptr<Wire> out, std::shared_ptr<Wire> in)
      : network_(network), out_(std::move(out)), in_(std::move(in)) {}
  SimulatedChannel(const SimulatedChannel&) = delete;
  SimulatedChannel& operator=(const SimulatedChannel&) = delete;
  ~SimulatedChannel() override { out_->has_ended = true; }

  bool is_open() const override { return is_open_; }
  const std::string& reason() const override { return reason_; }
  pollfd interest() const override { return {}; }
  bool is_flushed() const override { return !out_->is_cut || out_->frames.size() < 2; }
  void send(const Frame& frame) override {
    if (!is_open_) return;
    out_->last_arrival =
        std::max(out_->last_arrival, network_.now + network_.uniform(network_.longest_delay));
    out_->frames.emplace_back(out_->last_arrival, frame);
  }
  std::vector<Frame> receive() override {
    std::vector<Frame> arrived;
    if (!is_open_ || in_->is_cut) return arrived;
    while (!in_->frames.empty() && in_->frames.front().first <= network_.now) {
      arrived.push_back(std::move(in_->frames.front().second));
      in_->frames.pop_front();
    }
    if (in_->frames.empty() && in_->has_ended) close("its connection closed");
    return arrived;
  }
  void finish_sending() override { out_->has_ended = true; }
  void close(std::string reason) override {
    is_open_ = false;
    out_->has_ended = true;
    reason_ = std::move(reason);
  }

 private:
  WatchNetwork& network_;
  std::shared_ptr<Wire> out_;
  std::shared_ptr<Wire> in_;
  bool is_open_ = true;
  std::string reason_;
};

/// The connections of ranks, at the times at which they arrive.
class SimulatedEntrance final : public allreduce::Entrance {
 public:
  void add(double time, std::unique_ptr<net::FrameChannel> channel) {
    arriving_.emplace_back(time, std::move(channel));
  }
  std::vector<std::unique_ptr<net::FrameChannel>> arrivals(double now) override {
    std::vector<std::unique_ptr<net::FrameChannel>> arrived;
    for (auto& [time, channel] : arriving_)
      if (time <= now && channel) arrived.push_back(std::move(channel));
    return arrived;
  }
  void add_interests(std::vector<pollfd>& /*interests*/, double /*now*/) const override {}

 private:
  std::vector<std::pair<double, std::unique_ptr<net::FrameChannel>>> arriving_;
};

enum class Trouble { none, ends, stops, unreachable, hangs, fails, returns };
constexpr const char* kTroubles[] = {"none",  "ends",  "stops",  "unreachable",
                                     "hangs", "fails", "returns"};

struct WatchPlan {
  int ranks = 2;
  Trouble trouble = Trouble::none;
  std::set<int> culprits = {};  // several become unreachable together: a partition
  double time = 0;              // at which the trouble begins
};

/// A rank: what it does, and its part in the watch.
struct Rank {
  std::unique_ptr<Activity> activity = std::make_unique<Activity>();
  allreduce::ActivityAge age = {};
  std::unique_ptr<Agent> agent = {};
  std::unique_ptr<SimulatedChannel> joining = {};  // until rank 0 has welcomed it
  double next_beat = 0;
  double works_until = 0;
  bool is_inside = false;  // it waits in a collective
  std::uint64_t entered = 0;
  bool is_stopped = false;                          // it does nothing any more
  bool is_hanging = false;                          // its work never ends
  std::uint64_t returns_after = ~std::uint64_t{0};  // so many collectives
  bool has_returned = false;  // it is at the end of its session, where it waits for the others
  double fails_at = kNever;
  double leaves_at = kNever;
  bool is_over = false;
  std::optional<Finding> finding = {};
  double found_at = 0;
};

class WatchedJob {
 public:
  explicit WatchedJob(std::uint64_t seed) : network_{.random = std::mt19937_64(seed)} {
    plan_.ranks = 2 + network_.pick(network_.pick(8) == 0 ? 15 : 4);
    plan_.trouble = static_cast<Trouble>(network_.pick(7));
    plan_.time = 3 + network_.uniform(6);
    plan_.culprits.insert(network_.pick(plan_.ranks));
    if (plan_.trouble == Trouble::unreachable && network_.pick(2) == 0)
      for (int rank = 1; rank < plan_.ranks; ++rank)
        if (network_.pick(2) == 0) plan_.culprits.insert(rank);
    network_.longest_delay = network_.pick(3) == 0 ? 2 : 0.02;
    start();
  }

  Outcome finish() {
    try {
      // Everybody has ended by then: rank 0 finds a silent rank after kStall, a member a silent
      // rank 0 a little later.
      const double bound = plan_.time + 2 * kStall + 6 * kHeartbeat + 4 * network_.longest_delay;
      while (network_.now < bound && !is_over()) tick();
      check();
    } catch (const std::string& failure) {
      outcome_.failure = fmt::format("{}; {} ranks, {} at {:.2f}: {}", failure, plan_.ranks,
                                     kTroubles[static_cast<int>(plan_.trouble)], plan_.time,
                                     fmt::join(plan_.culprits, " "));
    }
    note(outcome_.failure);
    return outcome_;
  }

 private:
  void start() {
    const Invitation invitation{.host = "h0", .stall_timeout = kStall, .heartbeat = kHeartbeat};
    auto entrance = std::make_unique<SimulatedEntrance>();
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>());
      wires_.push_back({std::make_shared<Wire>(), std::make_shared<Wire>()});
      if (rank == 0) continue;
      const auto& [up, down] = wires_.back();
      entrance->add(network_.uniform(2), std::make_unique<SimulatedChannel>(network_, down, up));
      ranks_.back()->joining = std::make_unique<SimulatedChannel>(network_, up, down);
      ranks_.back()->joining->send({allreduce::MessageKind::hello,
                                    allreduce::write_hello({.rank = rank, .host = host(rank)})});
    }
    ranks_[0]->agent = std::make_unique<Coordinator>(plan_.ranks, invitation, std::move(entrance));
    while (std::ranges::any_of(ranks_, [](const auto& one) { return !one->agent; })) {
      if ((network_.now += kTick) > 20) throw std::string("not everybody is welcomed");
      if (ranks_[0]->agent->receive(network_.now)) throw std::string("a finding before the start");
      for (int rank = 1; rank < plan_.ranks; ++rank) welcome(rank, invitation);
    }
    began_ = network_.now;
    plan_.time += began_;
  }

  static std::string host(int rank) { return fmt::format("h{}", rank); }

  void welcome(int number, const Invitation& invitation) {
    Rank& rank = *ranks_[static_cast<std::size_t>(number)];
    if (!rank.joining) return;
    for (const Frame& frame : rank.joining->receive())
      if (frame.is(allreduce::MessageKind::welcome)) {
        rank.agent = std::make_unique<allreduce::Member>(number, host(number), invitation, "job",
                                                         std::move(rank.joining));
        beat(rank);
        return;
      }
  }

  void tick() {
    network_.now += kTick;
    ++outcome_.events;
    if (network_.now >= plan_.time && !has_begun_) begin_trouble();
    std::vector<int> order(ranks_.size());
    for (int rank = 0; rank < plan_.ranks; ++rank) order[static_cast<std::size_t>(rank)] = rank;
    std::shuffle(order.begin(), order.end(), network_.random);
    for (const int rank : order) look(rank);
  }

  void begin_trouble() {
    has_begun_ = true;
    std::uint64_t most = 0;
    for (const auto& rank : ranks_) most = std::max(most, rank->entered);
    if (plan_.trouble == Trouble::none)
      for (const auto& rank : ranks_) rank->returns_after = most + 1;
    for (const int culprit : plan_.culprits) {
      Rank& rank = *ranks_[static_cast<std::size_t>(culprit)];
      if (plan_.trouble == Trouble::ends) end(rank);
      if (plan_.trouble == Trouble::stops) rank.is_stopped = true;
      if (plan_.trouble == Trouble::hangs) rank.is_hanging = true;
      if (plan_.trouble == Trouble::fails) rank.fails_at = network_.now;
      if (plan_.trouble == Trouble::returns) rank.returns_after = rank.entered;
      if (plan_.trouble != Trouble::unreachable) continue;
      for (int other = 0; other < plan_.ranks; ++other)
        if (other == culprit || culprit == 0)
          for (const auto& wire : wires_[static_cast<std::size_t>(other)]) wire->is_cut = true;
    }
  }

  /// The process ends: the system closes its connections.
  static void end(Rank& rank) {
    rank.agent.reset();
    rank.is_over = true;
  }

  void look(int number) {
    Rank& rank = *ranks_[static_cast<std::size_t>(number)];
    if (rank.is_over || rank.is_stopped) return;
    work(rank);
    if (rank.is_over) return;
    std::optional<Finding> finding = rank.agent->receive(network_.now);
    if (!finding && network_.now >= rank.next_beat) finding = beat(rank);
    if (!finding || finding->is_warning) return;
    rank.finding = finding;
    rank.found_at = network_.now;
    note(finding->text);
    rank.agent->broadcast_failure(finding->text, std::chrono::milliseconds(0));
    end(rank);
  }

  std::optional<Finding> beat(Rank& rank) {
    rank.next_beat = network_.now + kHeartbeat;
    return rank.agent->beat(network_.now, {rank.age.update(rank.activity->state(), network_.now)},
                            {});
  }

  /// The training: work, then a collective, which ends when everybody has entered it. A rank whose
  /// collective fails, after another rank's error, fails too.
  void work(Rank& rank) {
    if (network_.now >= rank.fails_at) return fail(rank);
    if (!rank.is_inside && rank.entered >= rank.returns_after) return leave(rank);
    if (!rank.is_inside && !rank.is_hanging && network_.now >= rank.works_until) {
      rank.activity->enter("all_reduce", 0);
      rank.is_inside = true;
      ++rank.entered;
    }
    const bool all_are_there =
        std::ranges::all_of(ranks_, [&](const auto& one) { return one->entered >= rank.entered; });
    if (rank.is_inside && all_are_there) {
      rank.activity->leave();
      rank.is_inside = false;
      rank.activity->set_phase(Phase::compute);
      rank.works_until = network_.now + network_.uniform(3);
    }
  }

  /// As at the end of a session: everybody waits for the others, and leaves.
  void leave(Rank& rank) {
    if (!rank.has_returned) {
      rank.has_returned = true;
      rank.activity = std::make_unique<Activity>(allreduce::kCollectivesBeforeTheEnd +
                                                 rank.activity->state().left);
      rank.activity->set_phase(Phase::ending);
      rank.activity->enter("the end of the job");
    }
    if (!std::ranges::all_of(ranks_, [](const auto& one) { return one->has_returned; })) return;
    if (rank.leaves_at == kNever) rank.leaves_at = network_.now + network_.uniform(3);
    if (network_.now < rank.leaves_at) return;
    rank.agent->send_goodbye(false, std::chrono::milliseconds(0));
    end(rank);
  }

  void fail(Rank& rank) {
    if (rank.leaves_at == kNever) {
      if (std::exchange(rank.is_inside, false)) rank.activity->leave();  // by the exception
      rank.agent->announce_error(network_.now);
      rank.leaves_at = network_.now + network_.uniform(3);
      for (const auto& other : ranks_)
        other->fails_at = std::min(other->fails_at, network_.now + network_.uniform(2));
    }
    if (network_.now < rank.leaves_at) return;
    // A launcher may kill it first.
    if (network_.pick(2) == 0) rank.agent->send_goodbye(true, std::chrono::milliseconds(0));
    end(rank);
  }

  bool is_over() const {
    return std::ranges::all_of(ranks_,
                               [](const auto& rank) { return rank->is_over || rank->is_stopped; });
  }

  /// The rank that a text names first.
  static int named(const std::string& text) {
    std::smatch found;
    return std::regex_search(text, found, std::regex("rank ([0-9]+)")) ? std::stoi(found[1]) : -1;
  }

  void check() const {
    for (int number = 0; number < plan_.ranks; ++number) {
      const Rank& rank = *ranks_[static_cast<std::size_t>(number)];
      if (!rank.is_over && !rank.is_stopped) throw fmt::format("rank {} goes on", number);
      if (!rank.finding) continue;
      const std::string& text = rank.finding->text;
      if (plan_.trouble == Trouble::none || plan_.trouble == Trouble::fails) {
        if (text != "the job ends after an error")
          throw fmt::format("rank {} found without a fault: {}", number, text);
        continue;
      }
      // Who is cut off sees rank 0 as lost; all others name who it is.
      const bool is_apart =
          plan_.trouble == Trouble::unreachable && plan_.culprits.contains(number);
      const bool is_right = is_apart && number != 0 ? named(text) == 0
                            : is_apart              ? named(text) != 0
                                                    : plan_.culprits.contains(named(text));
      if (!is_right) throw fmt::format("rank {} named the wrong rank: {}", number, text);
      // The end of a process needs no timeout, and that of a session little time: that of the work
      // before the last collective that completes and before the next, which does not, and a
      // second to be sure.
      const bool is_late =
          rank.found_at > plan_.time + 2 * network_.longest_delay + kHeartbeat +
                              (plan_.trouble == Trouble::returns ? 7 + 2 * kTick : 0);
      if (is_late && (plan_.trouble == Trouble::ends || plan_.trouble == Trouble::returns))
        throw fmt::format("rank {} found the end of another late, at {:.2f}: {}", number,
                          rank.found_at, text);
    }
  }

  void note(const std::string& text) {
    const std::uint64_t both[] = {outcome_.digest, XXH3_64bits(text.data(), text.size()),
                                  static_cast<std::uint64_t>(network_.now * 1000)};
    outcome_.digest = XXH3_64bits(both, sizeof(both));
  }

  WatchNetwork network_;
  WatchPlan plan_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::array<std::shared_ptr<Wire>, 2>> wires_;  // by rank: to rank 0, from it
  double began_ = 0;
  bool has_begun_ = false;
  Outcome outcome_;
};

// ---- Failures

constexpr double kCompareLimit = 1;

struct FailingRank {
  double fails_at = 0;  // kNever: it goes on
  job::Failure failure = {};
  std::optional<job::FailureComparison> comparison = {};
  std::optional<job::FailureVerdict> verdict = {};
  double decided_at = 0;
};

class FailingJob {
 public:
  explicit FailingJob(std::uint64_t seed) : random_(seed), network_(2 + pick(7), seed + 1) {
    const int kinds = 1 + pick(2);
    const int goes_on = pick(3) == 0 ? pick(network_.size()) : -1;
    ranks_ = std::vector<FailingRank>(static_cast<std::size_t>(network_.size()));
    for (int number = 0; number < network_.size(); ++number) {
      FailingRank& rank = ranks_[static_cast<std::size_t>(number)];
      const int kind = pick(kinds);
      rank.failure = {.message = fmt::format("[x] {}", kind), .exit_status = 3 + kind};
      rank.failure.consequence = pick(3) == 0;
      rank.fails_at = number == goes_on ? kNever : 0.3 * pick(100) / 100;
      transports_.push_back(network_.transport(number));
    }
    has_ended_ = goes_on >= 0 && pick(2) == 0;
    if (has_ended_) network_.end(goes_on, pick(2) == 0);
    all_fail_ = goes_on < 0;
  }

  Outcome finish() {
    for (double now = 0; now < 4 && outcome_.failure.empty(); now += 0.0005) {
      ++outcome_.events;
      for (int i = 0; i < network_.size(); ++i) network_.step();
      look(pick(network_.size()), now);
      if (std::ranges::all_of(ranks_, [](const FailingRank& rank) {
            return rank.verdict || rank.fails_at == kNever;
          }))
        break;
    }
    try {
      check();
    } catch (const std::string& failure) {
      outcome_.failure = failure + fmt::format("; {} failing ranks", network_.size());
    }
    return outcome_;
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  void look(int number, double now) {
    FailingRank& rank = ranks_[static_cast<std::size_t>(number)];
    if (now < rank.fails_at || rank.verdict) return;
    if (!rank.comparison)
      rank.comparison.emplace(rank.failure, *transports_[static_cast<std::size_t>(number)],
                              kCompareLimit);
    rank.verdict = rank.comparison->advance(now - rank.fails_at);
    rank.decided_at = now;
    const std::uint64_t what[] = {outcome_.digest, static_cast<std::uint64_t>(number),
                                  rank.verdict ? 1U + (rank.verdict->print ? 1U : 0U) : 0U};
    outcome_.digest = XXH3_64bits(what, sizeof(what));
  }

  void check() const {
    std::set<std::string> printed;
    const bool has_cause = std::ranges::any_of(
        ranks_, [](const FailingRank& rank) { return !rank.failure.consequence; });
    int status = 0;
    for (const FailingRank& rank : ranks_) {
      if (rank.fails_at == kNever) continue;
      if (!rank.verdict) throw std::string("a failed rank waits for ever");
      if (rank.decided_at > rank.fails_at + kCompareLimit + 0.2)
        throw std::string("a failed rank waits too long");
      if (rank.verdict->everyone_failed != all_fail_)
        throw fmt::format("{} is said to have failed", all_fail_ ? "not everybody" : "everybody");
      if (!all_fail_) continue;
      if (status != 0 && rank.verdict->exit_status != status)
        throw std::string("two statuses of one job");
      status = rank.verdict->exit_status;
      if (!rank.verdict->print) continue;
      if (rank.failure.consequence && has_cause)
        throw std::string("a consequence is printed beside its cause");
      const std::string key = rank.failure.message + (rank.failure.consequence ? "c" : "");
      if (!printed.insert(key).second) throw std::string("two ranks print one failure");
    }
    if (!all_fail_) return;
    for (const FailingRank& rank : ranks_)
      if ((!rank.failure.consequence || !has_cause) &&
          !printed.contains(rank.failure.message + (rank.failure.consequence ? "c" : "")))
        throw std::string("a failure that nobody prints");
  }

  std::mt19937_64 random_;
  allreduce::SimulatedNetwork network_;
  std::vector<std::shared_ptr<allreduce::Transport>> transports_;
  std::vector<FailingRank> ranks_;
  bool all_fail_ = true;
  bool has_ended_ = false;
  Outcome outcome_;
};

}  // namespace

Outcome run_watch(std::uint64_t seed) {
  try {
    return WatchedJob(seed).finish();
  } catch (const std::string& failure) {
    return {.failure = failure};
  }
}

Outcome run_failures(std::uint64_t seed) { return FailingJob(seed).finish(); }

}  // namespace lockstep::inline v0::simulator
