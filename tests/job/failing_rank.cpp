// A loop in which one rank, or all ranks, fail at step 3.
#include <cstring>
#include <stdexcept>

#include "lockstep/job/run.h"
#include "lockstep/job/workers.h"

int main(int argc, char** argv) {
  const bool all = argc > 1 && std::strcmp(argv[1], "all") == 0;
  return lockstep::job::run(argc, argv, [&](lockstep::job::Session& session) {
    lockstep::job::Workers& workers = session.workers();
    for (int step = 1; step < 5; ++step) {
      workers.activity().set_step(step);
      if (step == 3 && (all || session.rank() == 1)) throw std::runtime_error("bad image 17.jpg");
      workers.barrier();
    }
  });
}
