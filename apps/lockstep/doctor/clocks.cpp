#include "apps/lockstep/doctor/clocks.h"

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::apps::doctor {
namespace {

constexpr const char* kCheck = "clocks";
constexpr int kRounds = 10;
constexpr int kTag = 24;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Of several round trips the shortest tells most: least of it can have been on one way alone.
ClockReading ask(MPI_Comm ranks, const Place& place) {
  ClockReading reading{.place = place, .seconds_uncertain = std::numeric_limits<double>::max()};
  for (int round = 0; round < kRounds; ++round) {
    double there = 0;
    const double before = wall_seconds();
    MPI_Sendrecv(&before, 1, MPI_DOUBLE, place.rank, kTag, &there, 1, MPI_DOUBLE, place.rank, kTag, ranks,
                 MPI_STATUS_IGNORE);
    const double half_trip = (wall_seconds() - before) / 2;
    if (half_trip >= reading.seconds_uncertain) continue;
    reading.seconds_uncertain = half_trip;
    reading.seconds_ahead = there - (before + half_trip);
  }
  return reading;
}

void answer(MPI_Comm ranks) {
  for (int round = 0; round < kRounds; ++round) {
    double asked = 0;
    MPI_Recv(&asked, 1, MPI_DOUBLE, 0, kTag, ranks, MPI_STATUS_IGNORE);
    const double now = wall_seconds();
    MPI_Send(&now, 1, MPI_DOUBLE, 0, kTag, ranks);
  }
}

}  // namespace

std::vector<ClockReading> measure_clocks(Ranks& ranks) {
  if (ranks.session().nodes() == 1) return {};
  const allreduce::CollectiveScope scope(&ranks.activity(), kCheck);
  std::vector<ClockReading> readings;
  if (ranks.mine().rank == 0) {
    for (const Place& place : ranks.places()) {
      if (place.local_rank != 0 || place.rank == 0) continue;
      readings.push_back(ask(ranks.session().ranks(), place));
      ranks.activity().tick();
    }
  } else if (ranks.mine().local_rank == 0) {
    answer(ranks.session().ranks());
  }
  return readings;
}

Outcome judge_clocks(const std::vector<ClockReading>& readings) {
  constexpr double kWarning = 1;
  constexpr double kProblem = 300;  // what Kerberos and TLS put up with
  Outcome outcome{.check = kCheck};
  double most = 0;
  for (const ClockReading& reading : readings) {
    const double certain = std::max(0.0, std::abs(reading.seconds_ahead) - reading.seconds_uncertain);
    most = std::max(most, std::abs(reading.seconds_ahead));
    if (certain < kWarning) continue;
    outcome.add(
        {.ranks = {reading.place.rank},
         .level = certain < kProblem ? Level::warning : Level::problem,
         .what = fmt::format("the clock of {} is {:.3g} s {} that of rank 0's host", reading.place.host,
                             std::abs(reading.seconds_ahead), reading.seconds_ahead > 0 ? "ahead of" : "behind"),
         .remedy = "let both keep the time: timedatectl set-ntp true, or chronyc makestep"});
  }
  outcome.summary = readings.empty() ? "one host: one clock" : fmt::format("{:.2g} s apart at most", most);
  return outcome;
}

}  // namespace lockstep::apps::doctor
