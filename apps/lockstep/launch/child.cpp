#include "apps/lockstep/launch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/net/token.h"

namespace lockstep::inline v0::apps::launch {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
    sigaddset(&set, signal);
  // A hangup that nohup ignores would be delivered here if it were blocked.
  struct sigaction hangup = {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
    sigdelset(&set, SIGHUP);
  return set;
}

struct Pipe {
  FileDescriptor reading;
  FileDescriptor writing;
};

Pipe make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(ErrorCategory::communication, "launch", "expected to create a pipe",
                std::generic_category().message(errno));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::vector<std::string> environment_without_task() {
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (const std::string whole = *entry; !identifies_task(whole.substr(0, whole.find('='))))
      kept.push_back(whole);
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

void run_on(const std::vector<int>& processors) {
  if (processors.empty()) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int processor : processors)
    if (processor < CPU_SETSIZE) CPU_SET(processor, &mask);
  sched_setaffinity(0, sizeof(mask), &mask);
}

/// Runs between fork and exec in a single-threaded process. Writes errno to `failure` if exec
/// fails.
[[noreturn]] void become(const std::vector<char*>& words, const std::vector<char*>& environment,
                         const ChildOptions& options, const Pipe& output, const Pipe& errors,
                         const Pipe& failure, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, kEndSignal);
  if (getppid() != parent) _exit(kSignalStatus + kEndSignal);
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  sigprocmask(SIG_SETMASK, &terminate, nullptr);
  run_on(options.processors);
  if (options.captured) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output.writing.get(), STDOUT_FILENO);
    dup2(errors.writing.get(), STDERR_FILENO);
  }
  execvpe(words[0], words.data(), environment.data());
  const int error = errno;
  static_cast<void>(!write(failure.writing.get(), &error, sizeof(error)));
  _exit(EXIT_FAILURE);
}

/// The errno of a failed exec; 0 if exec succeeded, which closes the child's end of the pipe.
int error_of(Pipe& started) {
  started.writing = FileDescriptor();
  pollfd interest{.fd = started.reading.get(), .events = POLLIN, .revents = 0};
  poll(&interest, 1, -1);
  int error = 0;
  return read(started.reading.get(), &error, sizeof(error)) == static_cast<ssize_t>(sizeof(error))
             ? error
             : 0;
}

/// The kernel lists children by thread, and mpirun forks from several threads.
std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  std::error_code gone;
  std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", process), gone);
  for (; thread != std::filesystem::directory_iterator(); thread.increment(gone)) {
    std::ifstream list(thread->path() / "children");
    children.insert(children.end(), std::istream_iterator<pid_t>(list), {});
  }
  return children;
}

bool is_rank(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  const std::string environment{std::istreambuf_iterator<char>(file), {}};
  using std::string_view_literals::operator""sv;
  constexpr std::string_view kRank =
      "\0OMPI_COMM_WORLD_RANK="sv;  // the first variable has no '\0' before it
  return environment.starts_with(kRank.substr(1)) || environment.find(kRank) != std::string::npos;
}

}  // namespace

bool identifies_task(const std::string& name) {
  constexpr std::array kNames = {
      "TF_CONFIG",        "RANK",         "WORLD_SIZE",     "LOCAL_RANK",
      "LOCAL_WORLD_SIZE", "NODE_RANK",    "GROUP_RANK",     "SLURM_PROCID",
      "SLURM_LOCALID",    "SLURM_NODEID", "SLURM_TASK_PID", "SLURM_GTIDS"};
  constexpr std::array kBeginnings = {"PMI_", "PMIX_", "SLURM_STEP_", "SLURM_CPU_BIND",
                                      "SLURM_PMI"};
  // The secret of the launch. The watchdog of the ranks has its own secret.
  if (name == net::kSecretVariable || name == net::kSecretFileVariable) return true;
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kBeginnings,
                             [&](const char* beginning) { return name.starts_with(beginning); });
}

Child::Child(const std::vector<std::string>& command, const ChildOptions& options) {
  std::vector<std::string> words = command;
  std::vector<std::string> environment = environment_without_task();
  const std::vector<char*> word_pointers = pointers(words);
  const std::vector<char*> environment_pointers = pointers(environment);
  Pipe output = options.captured ? make_pipe() : Pipe{};
  Pipe errors = options.captured ? make_pipe() : Pipe{};
  Pipe failure = make_pipe();
  const pid_t parent = getpid();
  id_ = fork();
  if (id_ < 0)
    throw Error(ErrorCategory::communication, "launch", "expected to start a process",
                std::generic_category().message(errno));
  if (id_ == 0)
    become(word_pointers, environment_pointers, options, output, errors, failure, parent);
  setpgid(id_, id_);  // in parent and child, to avoid a race
  if (const int error = error_of(failure); error != 0) {
    waitpid(id_, nullptr, 0);
    throw Error(ErrorCategory::input, "launch", fmt::format("expected {} in PATH", command.front()),
                std::generic_category().message(error));
  }
  output_ = std::move(output.reading);
  errors_ = std::move(errors.reading);
}

Child::~Child() {
  if (status()) return;
  end_by_force();
  waitpid(id_, nullptr, 0);
}

std::optional<int> Child::status() {
  int status = 0;
  if (!status_ && waitpid(id_, &status, WNOHANG) == id_)
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalStatus + WTERMSIG(status);
  return status_;
}

bool Child::is_stopped() const {
  std::ifstream file(fmt::format("/proc/{}/stat", id_));
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name = stat.rfind(") ");  // the state follows the name in parentheses
  return name != std::string::npos && stat.compare(name + 2, 1, "T") == 0;
}

void Child::signal(int signal) const {
  if (!status_) kill(id_, signal);
}

void Child::signal_group(int signal) const {
  if (!status_) kill(-id_, signal);
}

void Child::end_by_force() const {
  for (const pid_t rank : ranks()) kill(rank, SIGKILL);
  signal_group(SIGKILL);
}

std::vector<pid_t> Child::ranks() const {
  std::vector<pid_t> ranks;
  std::vector<pid_t> parents = {id_};
  for (std::size_t i = 0; i < parents.size(); ++i)
    for (const pid_t child : children_of(parents[i]))
      (is_rank(child) ? ranks : parents).push_back(child);
  return ranks;
}

SignalQueue::SignalQueue() {
  const sigset_t watched = watched_signals();
  sigprocmask(SIG_BLOCK, &watched, nullptr);
  descriptor_ = FileDescriptor(signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
}

SignalQueue::~SignalQueue() {
  const sigset_t watched = watched_signals();
  sigprocmask(SIG_UNBLOCK, &watched, nullptr);
}

std::vector<int> SignalQueue::drain() const {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (read(descriptor_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info)))
    if (info.ssi_signo != SIGCHLD) signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

}  // namespace lockstep::inline v0::apps::launch
