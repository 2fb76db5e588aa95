#include "lockstep/job/clock_offset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/transport/direct_messages.h"
#include "lockstep/base/error.h"
#include "lockstep/job/agreement.h"

namespace lockstep::inline v0::job {
namespace {

constexpr std::size_t kExchanges = 100;  // between two checks of the uncertainty
constexpr std::size_t kMaxExchanges = 2000;
constexpr std::int64_t kMaxUncertainty = 50'000;  // nanoseconds
constexpr std::int64_t kMaxDuration = 500'000'000;
constexpr std::int64_t kDriftDivisor = 1000;  // 1 ms per second

/// A request for the time, its answer in the first number, or the result: time, offset, and an
/// uncertainty that is not negative.
using ClockMessage = std::array<std::int64_t, 3>;

std::int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void send_message(allreduce::DirectMessages& messages, const ClockMessage& message, int rank) {
  std::memcpy(messages.outgoing().data(), message.data(), sizeof(message));
  messages.send(rank, sizeof(message));
}

ClockMessage receive_message(allreduce::DirectMessages& messages, int rank) {
  ClockMessage message{};
  messages.receive(rank, sizeof(message));
  std::memcpy(message.data(), messages.incoming().data(), sizeof(message));
  return message;
}

/// Rank 0's part: queries the time of `rank` until the offset is precise enough, and sends it the
/// result.
void query_clock(int rank, allreduce::DirectMessages& messages) {
  std::vector<ClockExchange> exchanges;
  trace::ClockOffset offset{.uncertainty = std::numeric_limits<std::int64_t>::max()};
  const std::int64_t start = steady_nanoseconds();
  while (offset.uncertainty > kMaxUncertainty && exchanges.size() < kMaxExchanges &&
         steady_nanoseconds() - start < kMaxDuration) {
    for (std::size_t i = 0; i < kExchanges; ++i) {
      ClockExchange one{.sent = steady_nanoseconds()};
      send_message(messages, {0, 0, -1}, rank);
      one.theirs = receive_message(messages, rank).front();
      one.received = steady_nanoseconds();
      exchanges.push_back(one);
    }
    offset = estimate_offset(exchanges);
  }
  send_message(messages, {offset.time, offset.offset, offset.uncertainty}, rank);
}

/// Another rank's part: answers until it receives the result.
trace::ClockOffset answer_clock(allreduce::DirectMessages& messages) {
  for (;;) {
    const auto [time, offset, uncertainty] = receive_message(messages, 0);
    const std::int64_t mine = steady_nanoseconds();
    if (uncertainty >= 0) return {.time = time, .offset = offset, .uncertainty = uncertainty};
    send_message(messages, {mine}, 0);
  }
}

std::int64_t round_trip(const ClockExchange& one) { return one.received - one.sent; }

/// The first rank of each host.
std::vector<int> first_ranks(std::span<const int> host_of_rank) {
  std::vector<int> first;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank)
    if (std::ranges::find(host_of_rank.first(rank), host_of_rank[rank]) ==
        host_of_rank.begin() + static_cast<std::ptrdiff_t>(rank))
      first.push_back(static_cast<int>(rank));
  return first;
}

}  // namespace

trace::ClockOffset estimate_offset(std::span<const ClockExchange> exchanges) {
  LOCKSTEP_CHECK(!exchanges.empty());
  const ClockExchange& fastest = *std::ranges::min_element(exchanges, {}, round_trip);
  std::int64_t lower = fastest.theirs - fastest.received;
  std::int64_t upper = fastest.theirs - fastest.sent;
  for (const ClockExchange& one : exchanges) {
    const std::int64_t drift = std::abs(one.sent - fastest.sent) / kDriftDivisor + 1;
    const std::int64_t above = std::max(lower, one.theirs - one.received - drift);
    const std::int64_t below = std::min(upper, one.theirs - one.sent + drift);
    if (above > below) continue;  // a clock was set in between
    std::tie(lower, upper) = std::pair(above, below);
  }
  const std::int64_t uncertainty = (upper - lower + 1) / 2;
  return {.time = fastest.theirs, .offset = lower + uncertainty, .uncertainty = uncertainty};
}

trace::ClockOffset measure_clock_offset(const Session& session) {
  std::vector<int> host_of_rank(static_cast<std::size_t>(session.size()), 0);
  if (session.nodes() > 1) {
    const std::vector<std::string> nodes = session.all_gather(std::to_string(session.node()));
    std::ranges::transform(nodes, host_of_rank.begin(),
                           [](const std::string& node) { return std::stoi(node); });
  }
  return measure_clock_offset(session, host_of_rank);
}

trace::ClockOffset measure_clock_offset(const Session& session, std::span<const int> host_of_rank) {
  LOCKSTEP_CHECK_OP(host_of_rank.size(), ==, static_cast<std::size_t>(session.size()));
  trace::ClockOffset mine{.time = steady_nanoseconds(), .offset = 0, .uncertainty = 0};
  const std::vector<int> first = first_ranks(host_of_rank);
  if (first.size() == 1) return mine;
  {
    const allreduce::CollectiveScope scope = session.enter("the comparison of clocks");
    allreduce::DirectMessages messages(*session.ranks().impl()->transport(), sizeof(ClockMessage));
    if (session.rank() == 0)
      for (const int rank : std::span(first).subspan(1)) query_clock(rank, messages);
    else if (std::ranges::find(first, session.rank()) != first.end())
      mine = answer_clock(messages);
  }
  // The other ranks of a host share the clock of its first rank.
  const int host = host_of_rank[static_cast<std::size_t>(session.rank())];
  const auto same_host = std::ranges::find(host_of_rank, host) - host_of_rank.begin();
  const auto [time, offset, uncertainty] = Agreement(session).gather_values(
      "clocks",
      ClockMessage{mine.time, mine.offset, mine.uncertainty})[static_cast<std::size_t>(same_host)];
  return {.time = time, .offset = offset, .uncertainty = uncertainty};
}

}  // namespace lockstep::inline v0::job
