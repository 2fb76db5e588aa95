#include "lockstep/job/run.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "lockstep/base/system/host.h"
#include "lockstep/job/failure.h"
#include "lockstep/job/launch/launcher.h"

namespace lockstep::inline v0::job {

// Before MPI is initialized, only the launcher's environment distinguishes the ranks. mpirun ends
// the job when the first rank exits, so the other ranks wait to let rank 0 print. A rank that is
// still alive after that had an error of its own. Plain srun does not end the other ranks; there
// only rank 0 prints.
void print_before_session(const Failure& failure) {
  constexpr std::chrono::seconds kTimeOfRankZero{3};
  const Launch launch = detect_launch();
  if (launch.rank == 0) {
    fmt::print(stderr, "lockstep: error: {}\n", failure.message);
  } else if (launch.connects) {
    std::this_thread::sleep_for(kTimeOfRankZero);
    fmt::print(stderr, "lockstep: error: {} (rank {}, host {})\n", failure.message, launch.rank,
               host_name());
  }
}

int run_with_status(int argc, char** argv, const SessionOptions& options,
                    const std::function<int(Session&)>& body) {
  std::optional<Session> session;
  try {
    session.emplace(argc, argv, options);
  } catch (...) {
    const Failure failure = describe_current_exception();
    print_before_session(failure);
    return failure.exit_status;
  }
  return session->guard([&] { return body(*session); });
}

}  // namespace lockstep::inline v0::job
