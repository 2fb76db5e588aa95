#include "apps/lockstep/process_setup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ext/stdio_sync_filebuf.h>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/lockstep/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/system/processor.h"
#include "lockstep/base/terminal.h"
#include "lockstep/job/session.h"
#include "lockstep/job/signal/delayed_termination.h"
#include "lockstep/job/signal/signal_recording.h"

namespace lockstep::inline v0::apps {
namespace {

struct sigaction inherited;
bool is_known = false;

void set_up_first() {
  require_processor();
  is_known = ::sigaction(SIGHUP, nullptr, &inherited) == 0;
  job::hold_recording_requests();
}

// Functions in this section run before the constructors of all libraries.
[[gnu::section(".preinit_array"), gnu::used]] void (*runs_first)() = set_up_first;

}  // namespace

void restore_inherited_hangup() {
  if (is_known) ::sigaction(SIGHUP, &inherited, nullptr);
}

int run_session(const Invocation& invocation, const job::SessionOptions& options,
                const std::function<int(job::Session&)>& work) {
  job::SessionOptions monitored = options;
  monitored.start_monitor = invocation.start;
  job::Session session(invocation.argc, invocation.argv, monitored);
  const job::DelayedTermination late(session);
  const job::SignalRecording records(session);
  return session.guard([&] { return work(session); });
}

DataProgress::DataProgress(std::string_view verb, std::int64_t total)
    : verb_(printable(verb)), total_(total), on_terminal_(is_watched(STDERR_FILENO)) {}

DataProgress::~DataProgress() {
  if (on_terminal_) std::fputs("\r\x1b[K", stderr);
}

void DataProgress::show(std::int64_t records) {
  if (!on_terminal_) return;
  const std::string total = total_ > 0 ? fmt::format(" of {}", total_) : "";
  std::fputs(fmt::format("\r{}: {}{} records\x1b[K", verb_, records, total).c_str(), stderr);
}

void print_exactly(std::string_view text) {
  const std::string shown = is_watched(STDOUT_FILENO) ? printable(text, "\n\t") : "";
  if (!shown.empty()) text = shown;
  std::fwrite(text.data(), 1, text.size(), stdout);
}

namespace {

// Opens /dev/null for closed descriptors; read-only for standard output, so that writing to it
// still fails.
void open_closed_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free descriptor, which is this one.
    if (::open("/dev/null", descriptor == STDOUT_FILENO ? O_RDONLY : O_RDWR) < 0)
      ::open("/", O_RDONLY);
  }
}

extern "C" void ignore_signal(int /*signal*/) {}

// Installs an empty handler, so that write() fails with EPIPE, or with EFBIG at the limit of
// `ulimit -f`. SIG_IGN would be inherited by programs that `lockstep launch` starts.
void handle_write_signals() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    struct sigaction now = {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = ignore_signal;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

constexpr int kNoReader = -1;

std::string describe(int error, std::chrono::milliseconds limit) {
  if (error == kNoReader)
    return fmt::format("got a reader that read nothing for {} s",
                       std::chrono::duration<double>(limit).count());
  if (error == EBADF) return "got a closed descriptor";
  return fmt::format("got {}", std::generic_category().message(error));
}

}  // namespace

/// A FILE that replaces `stdout` or `stderr`; glibc allows assignment to both. It lives until the
/// process ends: libraries that were loaded meanwhile (NVIDIA's) keep the pointer, and flush it in
/// their own exit handlers.
class StandardStreams::Stream {
 public:
  /// `reports`: the stream on which the first failure is reported; may be null.
  Stream(std::FILE*& replaced, int descriptor, int buffering, Stream* reports)
      : replaced_(replaced), before_(replaced), descriptor_(descriptor), reports_(reports) {
    const cookie_io_functions_t functions{
        .read = nullptr, .write = &Stream::take, .seek = nullptr, .close = nullptr};
    file_ = ::fopencookie(this, "w", functions);
    if (file_ == nullptr) return;  // no memory: the stream stays as it is
    std::setvbuf(file_, nullptr, buffering, BUFSIZ);
    std::fflush(before_);
    replaced_ = file_;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void limit_waiting(std::chrono::milliseconds limit) { limit_ = limit; }

  void restore() {
    if (file_ == nullptr) return;
    std::fflush(file_);
    replaced_ = before_;
  }

  bool is_lost() const { return error_ != 0; }

  void write(std::string_view text) {
    while (!text.empty() && error_ == 0) {
      if (limit_.count() > 0 && !wait_until_writable()) return lose(kNoReader);
      // A pipe that is ready accepts PIPE_BUF bytes without blocking.
      const std::size_t size =
          limit_.count() > 0 ? std::min<std::size_t>(text.size(), PIPE_BUF) : text.size();
      const ssize_t written = ::write(descriptor_, text.data(), size);
      if (written >= 0)
        text.remove_prefix(static_cast<std::size_t>(written));
      else if (errno == EAGAIN)
        wait_until_writable();
      else if (errno != EINTR)
        return lose(errno);
    }
  }

  /// Flushes. Network file systems report write errors on close, so it also closes a duplicate of
  /// the descriptor.
  void finish() {
    if (file_ == nullptr) return;
    std::fflush(file_);
    const int copy = ::dup(descriptor_);
    if (copy >= 0 && ::close(copy) != 0 && error_ == 0) lose(errno);
  }

 private:
  static ssize_t take(void* stream, const char* text, std::size_t size) {
    static_cast<Stream*>(stream)->write({text, size});
    return static_cast<ssize_t>(size);
  }

  /// Waits until the descriptor is ready for writing, or for the limit. A broken stream counts as
  /// ready: write() reports the error.
  bool wait_until_writable() const {
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      const auto waited = std::chrono::steady_clock::now() - start;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit_ - waited).count();
      pollfd interest{.fd = descriptor_, .events = POLLOUT, .revents = 0};
      const int ready =
          ::poll(&interest, 1,
                 limit_.count() == 0 ? -1 : static_cast<int>(std::max<std::int64_t>(left, 0)));
      if (ready >= 0 || errno != EINTR) return ready != 0;
    }
  }

  void lose(int error) {
    error_ = error;
    if (reports_ == nullptr) return;
    const Error lost(ErrorCategory::output, "standard output", "expected a writable output",
                     describe(error, limit_));
    reports_->write(fmt::format("lockstep: error: {}\n", lost.what()));
  }

  std::FILE*& replaced_;
  std::FILE* before_;
  std::FILE* file_ = nullptr;
  int descriptor_;
  Stream* reports_;
  std::chrono::milliseconds limit_{0};  // 0 for none
  std::atomic<int> error_ = 0;          // an errno or kNoReader; any thread may print
};

StandardStreams::StandardStreams() {
  open_closed_descriptors();
  handle_write_signals();
  errors_ = new Stream(stderr, STDERR_FILENO, _IONBF, nullptr);
  output_ =
      new Stream(stdout, STDOUT_FILENO, ::isatty(STDOUT_FILENO) != 0 ? _IOLBF : _IOFBF, errors_);
  to_output_ = std::make_unique<__gnu_cxx::stdio_sync_filebuf<char>>(stdout);
  cout_before_ = std::cout.rdbuf(to_output_.get());
}

StandardStreams::~StandardStreams() {
  std::cout.rdbuf(cout_before_);
  output_->restore();
  errors_->restore();
}

void StandardStreams::limit_waiting(std::chrono::milliseconds limit) {
  errors_->limit_waiting(limit);
  output_->limit_waiting(limit);
}

int StandardStreams::finish(int status) {
  output_->finish();
  errors_->finish();
  return status == 0 && output_->is_lost() ? exit_status(ErrorCategory::output) : status;
}

}  // namespace lockstep::inline v0::apps
