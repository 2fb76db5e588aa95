#include "tests/simulator/node.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "lockstep/allreduce/transport/barrier.h"
#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"

namespace lockstep::inline v0::simulator {
namespace {

using allreduce::Barrier;
using allreduce::Call;

constexpr std::uint64_t kMaxEventsOfEach = 10'000;

enum class Fault { none, call_differs, member_fails };

class Node {
 public:
  explicit Node(std::uint64_t seed) : random_(seed) {
    const int members = pick(10) == 0 ? 16 : 2 + pick(7);
    rounds_ = 1 + pick(6);
    fault_ = Fault{pick(3)};
    culprit_ = pick(members);
    faulty_round_ = pick(rounds_);
    for (const Barrier& barrier : allreduce::make_barrier_of_threads(members))
      members_.push_back({.barrier = barrier});
  }

  Outcome finish() {
    try {
      while (!std::ranges::all_of(members_, [&](const Member& one) { return is_over(one); })) {
        if (outcome_.events++ == kMaxEventsOfEach * members_.size())
          throw std::string("it does not end");
        const int number = pick(static_cast<int>(members_.size()));
        advance(number, members_[static_cast<std::size_t>(number)]);
      }
      check_ends();
    } catch (const std::string& failure) {
      outcome_.failure =
          failure + fmt::format("; a node of {}, fault {} of {} in round {} of {}", members_.size(),
                                static_cast<int>(fault_), culprit_, faulty_round_, rounds_);
    }
    return outcome_;
  }

 private:
  struct Member {
    Barrier barrier;
    int round = 0;
    bool is_inside = false;
    int reads = 0;  // members whose data of this round it has still to read
    std::optional<std::string> failure = {};
  };

  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
  bool is_over(const Member& member) const { return member.failure || member.round == rounds_; }
  /// What a member says in a round. The calls are the same in all.
  static int word(int number, int round) { return number * 1000 + round; }

  /// One event: arrives, looks for the others, or reads the data of one.
  void advance(int number, Member& member) {
    if (is_over(member)) return;
    const auto me = static_cast<std::size_t>(number);
    const bool is_faulty = number == culprit_ && member.round == faulty_round_;
    try {
      if (member.reads > 0) {
        read(member, --member.reads);
        member.round += member.reads == 0 ? 1 : 0;
      } else if (!member.is_inside) {
        if (is_faulty && fault_ == Fault::member_fails) {
          member.barrier.fail({"all_reduce", "expected all members", "one left"});
          throw Error(ErrorCategory::communication, *member.barrier.failure());
        }
        const int mine = word(number, member.round);
        std::memcpy(member.barrier.next_note(), &mine, sizeof(mine));
        const bool differs = is_faulty && fault_ == Fault::call_differs;
        member.barrier.start(differs ? Call::any(true) : Call::barrier(),
                             {.segment = me, .offset = static_cast<std::uint64_t>(member.round)});
        member.is_inside = true;
      } else if (member.barrier.poll()) {
        member.is_inside = false;
        member.reads = static_cast<int>(members_.size());
      }
    } catch (const Error& error) {
      member.failure = error.what();
    }
    const std::uint64_t what[] = {outcome_.digest, me, static_cast<std::uint64_t>(member.round)};
    outcome_.digest = XXH3_64bits(what, sizeof(what));
  }

  void read(const Member& member, int other) const {
    int found = 0;
    std::memcpy(&found, member.barrier.note(other), sizeof(found));
    const allreduce::Place& place = member.barrier.place(other);
    if (found != word(other, member.round) || place.segment != static_cast<std::size_t>(other) ||
        place.offset != static_cast<std::size_t>(member.round))
      throw fmt::format("the data of member {} in round {} is that of another", other,
                        member.round);
  }

  void check_ends() const {
    for (const Member& member : members_) {
      if (member.failure.has_value() != (fault_ != Fault::none))
        throw member.failure ? "failed without a fault: " + *member.failure
                             : std::string("a member does not learn of the failure");
      if (member.failure && (*member.failure != *members_[0].failure))
        throw fmt::format("two causes: {} and {}", *member.failure, *members_[0].failure);
      if (member.failure && member.round > faulty_round_)
        throw std::string("a member passes the barrier without the one that failed");
      if (member.failure && member.round < faulty_round_)
        throw std::string("a member fails in a round at which all had arrived");
    }
  }

  std::mt19937_64 random_;
  std::vector<Member> members_;
  int rounds_ = 0;
  Fault fault_ = Fault::none;
  int culprit_ = 0;
  int faulty_round_ = 0;
  Outcome outcome_;
};

}  // namespace

Outcome run_node(std::uint64_t seed) { return Node(seed).finish(); }

}  // namespace lockstep::inline v0::simulator
