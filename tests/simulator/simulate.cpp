// Runs simulated jobs, each determined by a number (schedule.h).
//
//   simulate [--seed S] [--schedules N] [--seconds T] [--mutant K]
//
// --seed S        runs the schedule S alone, and prints "digest H"
// --schedules N   runs the schedules 0 to N - 1 (default: 2000), and prints "N schedules"
// --seconds T     runs schedules for this long instead
// --mutant K      with the planted defect K of mutants.toml
//
// Where a schedule breaks a promise it prints "seed S" and what is broken, and exits with 1.
#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/simulator/mutant.h"
#include "tests/simulator/schedule.h"

namespace {

using lockstep::simulator::Outcome;
using lockstep::simulator::run_schedule;

int report(std::uint64_t seed, const Outcome& outcome) {
  fmt::print("seed {}: {}\n", seed, outcome.failure);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t schedules = 2000;
  double seconds = 0;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return fmt::print(stderr, "simulate: expected a value for {}\n", argv[i]), 2;
    const std::string name = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seed") {
      const Outcome outcome = run_schedule(value);
      fmt::print("digest {:016x}\n", outcome.digest);
      return outcome.failure.empty() ? 0 : report(value, outcome);
    }
    if (name == "--schedules") {
      schedules = value;
    } else if (name == "--seconds") {
      seconds = std::strtod(argv[i + 1], nullptr);
    } else if (name == "--mutant") {
      lockstep::simulator::mutant = static_cast<int>(value);
    } else {
      return fmt::print(stderr,
                        "simulate: expected --seed, --schedules, --seconds or --mutant, got {}\n",
                        name),
             2;
    }
  }
  // Memory that is freed is used again: each checkpoint reads files through large buffers.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::uint64_t events = 0;
  std::uint64_t seed = 0;
  for (; seconds > 0 ? elapsed() < seconds : seed < schedules; ++seed) {
    const Outcome outcome = run_schedule(seed);
    events += outcome.events;
    if (!outcome.failure.empty()) return report(seed, outcome);
  }
  fmt::print("{} schedules, {} events, {:.0f} schedules/s\n", seed, events,
             static_cast<double>(seed) / elapsed());
  return 0;
}
