#include "apps/lockstep/kernel_threads.h"

#include <unistd.h>

#include <cstdlib>

namespace lockstep::apps {

void let_kernel_threads_sleep(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // About a microsecond: longer than the threads of an undisturbed kernel are apart.
  ::setenv("GOMP_SPINCOUNT", "1000", 1);
  // Where it fails the program goes on as it is, only slower on a busy machine.
  ::execv("/proc/self/exe", argv);
}

}  // namespace lockstep::apps
