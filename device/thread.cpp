#include "device/thread.h"

#include <omp.h>

#include <latch>
#include <vector>

#include "device/error.h"

namespace lockstep::device {

void throw_no_thread(std::string_view purpose, const std::system_error& error) {
  throw Error(
      ErrorCategory::device, "threads", fmt::format("expected a thread for {}", purpose),
      fmt::format("got none ({}); raise the limit of processes (ulimit -u, or pids.max of the container), or use "
                  "fewer replicas and data threads",
                  error.code().message()));
}

void start_kernel_threads() {
  const int helpers = omp_get_max_threads() - 1;
  if (helpers <= 0) return;
  {
    // As many at once as OpenMP is going to start.
    std::latch all_started(1);
    std::vector<std::jthread> probes;
    try {
      for (int i = 0; i < helpers; ++i)
        probes.push_back(start_thread<std::jthread>("the kernels", [&all_started] { all_started.wait(); }));
    } catch (...) {
      all_started.count_down();
      throw;
    }
    all_started.count_down();
  }
  int started = 0;
#pragma omp parallel reduction(+ : started)
  started += 1;
  LOCKSTEP_CHECK_OP(started, >=, 1);
}

}  // namespace lockstep::device
