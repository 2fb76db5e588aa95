#include "lockstep/base/system/process.h"

#include <fmt/format.h>
#include <omp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <latch>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0 {
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

/// Start time of a process; 0 if it does not exist or is hidden from this user.
std::uint64_t start_of(pid_t process) {
  constexpr int kStart = 22;  // number of the field in /proc/ID/stat (man 5 proc)
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line, '\0');
  // The second field is the program's name in parentheses, which may have any characters.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string field;
  for (int number = 3; number <= kStart; ++number) fields >> field;
  return fields ? parse_number<std::uint64_t>(field).value_or(0) : 0;
}

}  // namespace

const std::string& process_namespace() {
  static const std::string text = read_process_namespace();
  return text;
}

ProcessIdentity this_process() { return {::getpid(), start_of(::getpid())}; }

std::string process_mark() {
  const ProcessIdentity process = this_process();
  return fmt::format("{}-{}-{}", process_namespace(), process.id, process.start);
}

ProcessIdentity maker_of(std::string_view name) {
  const std::string mark = fmt::format("-{}-", process_namespace());
  const std::size_t place = name.rfind(mark);
  if (process_namespace().empty() || place == std::string_view::npos) return {};
  name.remove_prefix(place + mark.size());
  const std::size_t id_end = std::min(name.find('-'), name.size());
  const std::size_t start_end = name.find('-', id_end + 1);
  if (start_end == std::string_view::npos) return {};
  const auto id = parse_number<pid_t>(name.substr(0, id_end));
  const auto start = parse_number<std::uint64_t>(name.substr(id_end + 1, start_end - id_end - 1));
  return id && start ? ProcessIdentity{*id, *start} : ProcessIdentity{};
}

bool is_process_gone(const ProcessIdentity& process) {
  if (process.id <= 0) return false;
  if (::kill(process.id, 0) != 0 && errno == ESRCH) return true;
  const std::uint64_t start = process.start == 0 ? 0 : start_of(process.id);
  return start != 0 && start != process.start;
}

void throw_no_thread(std::string_view purpose, const std::system_error& error) {
  throw Error(ErrorCategory::device, "threads", fmt::format("expected a thread for {}", purpose),
              fmt::format("got none ({}); raise the process limit (ulimit -u, or pids.max of the "
                          "container), or use fewer replicas and data threads",
                          error.code().message()));
}

namespace {

// Starts `helpers` OpenMP threads besides the calling thread.
void start_team(int helpers) {
  {
    // Probe with the number of concurrent threads that OpenMP will start.
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
#pragma omp parallel num_threads(helpers + 1) reduction(+ : started)
  started += 1;
  LOCKSTEP_CHECK_OP(started, >=, 1);
}

// Reads must be rare and small: the watchdog must not count them as progress
// (allreduce/watchdog/progress.cpp).
constexpr std::chrono::milliseconds kBusyInterval(250);
constexpr int kThreadsRead = 16;
constexpr double kBusyThreads = 0.5;  // threads that wait for a core, on average

// Time for which the first threads of this process were runnable without a core.
std::chrono::nanoseconds waited_for_cores() {
  std::int64_t sum = 0;
  int count = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::int64_t ran = 0;
    std::int64_t waited = 0;
    if (std::ifstream(task.path() / "schedstat") >> ran >> waited) sum += waited;
    if (++count == kThreadsRead) break;
  }
  return std::chrono::nanoseconds(sum);
}

void wait_until_cores_are_busy() {
  auto time = std::chrono::steady_clock::now();
  auto waited = waited_for_cores();
  for (;;) {
    std::this_thread::sleep_for(kBusyInterval);
    const auto now = std::chrono::steady_clock::now();
    const auto waited_now = waited_for_cores();
    const std::chrono::duration<double> interval = now - time;
    if (waited_now - waited > kBusyThreads * interval) return;
    time = now;
    waited = waited_now;
  }
}

// Idle threads of GNU OpenMP spin for milliseconds, unless its threads in this process outnumber
// the cores: then they sleep after microseconds. Spinning is faster while cores are free. Once they
// are busy, this thread starts enough additional threads to outnumber the cores. These sleep until
// the process ends.
void outnumber_cores_once_busy(int helpers) {
  try {
    wait_until_cores_are_busy();
    start_team(std::max(1, omp_get_num_procs() - helpers));
  } catch (const std::exception&) {
    return;  // no thread or memory available: kernels are slower
  }
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

void start_kernel_threads() {
  const int helpers = omp_get_max_threads() - 1;
  if (helpers <= 0) return;
  start_team(helpers);
  static bool is_watching = false;
  if (std::exchange(is_watching, true) || std::getenv("GOMP_SPINCOUNT") != nullptr ||
      std::getenv("OMP_WAIT_POLICY") != nullptr)
    return;
  try {
    start_quiet_thread("idle kernel threads", [helpers] {
      outnumber_cores_once_busy(helpers);
    }).detach();
  } catch (const Error&) {
    // No thread available: kernels are slower on a busy machine.
  }
}

}  // namespace lockstep::inline v0
