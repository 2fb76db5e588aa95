#include "lockstep/job/clock_offset.h"

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/transport/mpi.h"

namespace lockstep::job {
namespace {

constexpr int kExchanges = 100;
constexpr int kClockTag = 7301;

std::int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Rank 0's part: sends its time and receives that of `rank`. The last message has the result.
void ask_clock(int rank, MPI_Comm ranks) {
  trace::ClockOffset best{.uncertainty = std::numeric_limits<std::int64_t>::max()};
  for (int i = 0; i < kExchanges; ++i) {
    std::int64_t theirs = 0;
    const std::int64_t sent = steady_nanoseconds();
    MPI_Send(&sent, 1, MPI_INT64_T, rank, kClockTag, ranks);
    MPI_Recv(&theirs, 1, MPI_INT64_T, rank, kClockTag, ranks, MPI_STATUS_IGNORE);
    const std::int64_t uncertainty = (steady_nanoseconds() - sent + 1) / 2;
    if (uncertainty >= best.uncertainty) continue;
    best = {.time = theirs, .offset = theirs - sent - uncertainty, .uncertainty = uncertainty};
  }
  const std::array<std::int64_t, 3> result{best.time, best.offset, best.uncertainty};
  MPI_Send(result.data(), static_cast<int>(result.size()), MPI_INT64_T, rank, kClockTag, ranks);
}

/// The part of another rank.
trace::ClockOffset tell_clock(MPI_Comm ranks) {
  for (int i = 0; i < kExchanges; ++i) {
    std::int64_t sent = 0;
    MPI_Recv(&sent, 1, MPI_INT64_T, 0, kClockTag, ranks, MPI_STATUS_IGNORE);
    const std::int64_t mine = steady_nanoseconds();
    MPI_Send(&mine, 1, MPI_INT64_T, 0, kClockTag, ranks);
  }
  std::array<std::int64_t, 3> result{};
  MPI_Recv(result.data(), static_cast<int>(result.size()), MPI_INT64_T, 0, kClockTag, ranks,
           MPI_STATUS_IGNORE);
  return {.time = result[0], .offset = result[1], .uncertainty = result[2]};
}

}  // namespace

trace::ClockOffset measure_clock_offset(const Session& session) {
  const trace::ClockOffset same{.time = steady_nanoseconds(), .offset = 0, .uncertainty = 0};
  if (session.nodes() == 1) return same;
  const std::vector<std::string> nodes = session.all_gather(std::to_string(session.node()));
  const allreduce::CollectiveScope scope(&session.activity(), "the comparison of clocks");
  const std::lock_guard turn(allreduce::mpi_turn());
  if (session.rank() != 0) return session.node() == 0 ? same : tell_clock(session.ranks());
  for (int rank = 1; rank < session.size(); ++rank)
    if (nodes[static_cast<std::size_t>(rank)] != "0") ask_clock(rank, session.ranks());
  return same;
}

}  // namespace lockstep::job
