#include "apps/lockstep/process_start.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace lockstep::apps {
namespace {

struct sigaction inherited;
bool is_known = false;

void note_hangup() { is_known = ::sigaction(SIGHUP, nullptr, &inherited) == 0; }

// An executable's functions here run before the constructors of all libraries.
[[gnu::section(".preinit_array"), gnu::used]] void (*note_first)() = note_hangup;

}  // namespace

void restore_inherited_hangup() {
  if (is_known) ::sigaction(SIGHUP, &inherited, nullptr);
}

void let_kernel_threads_sleep(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // About a microsecond: longer than the threads of an undisturbed kernel are apart.
  ::setenv("GOMP_SPINCOUNT", "1000", 1);
  // If it fails, the program continues unchanged, only slower on a busy machine.
  ::execv("/proc/self/exe", argv);
}

}  // namespace lockstep::apps
