#include "lockstep/base/system/process.h"

#include <fmt/format.h>
#include <omp.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <latch>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string read_process_namespace() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::erase(boot, '-');
  constexpr std::size_t kBootDigits = 16;
  const bool is_hex = boot.find_first_not_of("0123456789abcdef") == std::string::npos;
  struct stat status = {};
  if (boot.size() < kBootDigits || !is_hex || ::stat("/proc/self/ns/pid", &status) != 0) return {};
  return fmt::format("{}-{:x}", boot.substr(0, kBootDigits), status.st_ino);
}

}  // namespace

const std::string& process_namespace() {
  static const std::string text = read_process_namespace();
  return text;
}

bool is_process_gone(pid_t process) {
  return process > 0 && ::kill(process, 0) != 0 && errno == ESRCH;
}

void throw_no_thread(std::string_view purpose, const std::system_error& error) {
  throw Error(ErrorCategory::device, "threads", fmt::format("expected a thread for {}", purpose),
              fmt::format("got none ({}); raise the process limit (ulimit -u, or pids.max of the "
                          "container), or use fewer replicas and data threads",
                          error.code().message()));
}

void start_kernel_threads() {
  const int helpers = omp_get_max_threads() - 1;
  if (helpers <= 0) return;
  {
    // Probe with as many concurrent threads as OpenMP is going to start.
    std::latch all_started(1);
    std::vector<std::jthread> probes;
    try {
      for (int i = 0; i < helpers; ++i)
        probes.push_back(
            start_thread<std::jthread>("the kernels", [&all_started] { all_started.wait(); }));
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

}  // namespace lockstep
