#include "apps/lockstep/launch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"

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
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

/// Runs between fork and exec in a single-threaded process. Writes errno to `failure` if exec
/// fails.
[[noreturn]] void become(const std::vector<char*>& words, const std::vector<char*>& environment,
                         ChildOptions::Input input, const Pipe& pipe, const Pipe& failure,
                         pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kSignalStatus + SIGTERM);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A process in the background that reads from a terminal would be stopped.
  if (input == ChildOptions::Input::pipe)
    dup2(pipe.reading.get(), STDIN_FILENO);
  else if (input == ChildOptions::Input::none || isatty(STDIN_FILENO) != 0)
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  execvpe(words[0], words.data(), environment.data());
  const int error = errno;
  static_cast<void>(!::write(failure.writing.get(), &error, sizeof(error)));
  _exit(EXIT_FAILURE);
}

/// The errno of a failed exec; 0 if exec succeeded, which closes the child's end of the pipe.
int error_of(Pipe& started) {
  started.writing = FileDescriptor();
  int error = 0;
  return read(started.reading.get(), &error, sizeof(error)) == static_cast<ssize_t>(sizeof(error))
             ? error
             : 0;
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const ChildOptions& options) {
  std::vector<std::string> words = command;
  std::vector<std::string> environment = options.environment;
  const std::vector<char*> word_pointers = pointers(words);
  const std::vector<char*> environment_pointers = pointers(environment);
  Pipe input = make_pipe();
  Pipe failure = make_pipe();
  const pid_t parent = getpid();
  id_ = fork();
  if (id_ < 0)
    throw Error(ErrorCategory::communication, "launch", "expected to start a process",
                std::generic_category().message(errno));
  if (id_ == 0) become(word_pointers, environment_pointers, options.input, input, failure, parent);
  setpgid(id_, id_);  // in parent and child, to avoid a race
  if (const int error = error_of(failure); error != 0) {
    waitpid(id_, nullptr, 0);
    throw Error(ErrorCategory::input, "launch", fmt::format("expected {} in PATH", command.front()),
                std::generic_category().message(error));
  }
  if (options.input == ChildOptions::Input::pipe) input_ = std::move(input.writing);
}

Child::Child(Child&& other) noexcept
    : id_(std::exchange(other.id_, -1)), status_(other.status_), input_(std::move(other.input_)) {}

Child::~Child() {
  if (id_ < 0 || status()) return;
  signal_group(SIGKILL);
  waitpid(id_, nullptr, 0);
}

std::optional<int> Child::status() {
  int status = 0;
  while (!status_ && waitpid(id_, &status, WNOHANG | WUNTRACED | WCONTINUED) == id_) {
    is_stopped_ = WIFSTOPPED(status);
    if (WIFEXITED(status)) status_ = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) status_ = kSignalStatus + WTERMSIG(status);
  }
  return status_;
}

void Child::signal_group(int signal) const {
  if (!status_) kill(-id_, signal);
}

void Child::write(const std::string& text) const {
  if (input_.is_open()) static_cast<void>(!::write(input_.get(), text.data(), text.size()));
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
