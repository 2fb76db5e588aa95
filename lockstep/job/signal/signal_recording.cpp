#include "lockstep/job/signal/signal_recording.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/file_descriptor.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/trace/recording.h"

namespace lockstep::inline v0::job {
namespace {

// A signal handler receives only the signal number, so its state must be global.
std::atomic<int> wake_on_signal{-1};
std::atomic<bool> is_requested{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void wake_writer(int /*signal*/) {
  const int error = errno;
  is_requested.store(true);
  // Without a writer this fails, and the request is held.
  eventfd_write(wake_on_signal.load(std::memory_order_relaxed), 1);
  errno = error;
}

bool has_handler(int signal, void (*handler)(int)) {
  struct sigaction now = {};
  sigaction(signal, nullptr, &now);
  return (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == handler;
}

}  // namespace

/// The thread that writes.
class SignalRecording::Writer {
 public:
  explicit Writer(std::shared_ptr<Logger> logger)
      : logger_(std::move(logger)), wake_(eventfd(0, EFD_CLOEXEC)) {
    if (!wake_.is_open()) throw std::system_error(errno, std::generic_category());
    thread_ = start_quiet_thread("the recorder", [this] { run(); });
  }
  ~Writer() {
    stopping_.store(true);
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  int wake() const { return wake_.get(); }

 private:
  void run() {
    for (eventfd_t count = 0;;) {
      const int error = eventfd_read(wake_.get(), &count) == 0 ? 0 : errno;
      if (error == EINTR) continue;
      if (is_requested.exchange(false)) write();
      if (error != 0 || stopping_.load()) return;
    }
  }

  void write() const {
    try {
      const auto path = trace::write_recording(trace::kRequestReason);
      logger_->info(fmt::format("the last events are in {} (lockstep inspect {})", path.string(),
                                path.parent_path().string()));
    } catch (const std::exception& error) {
      logger_->warn(fmt::format("the last events were not written: {}", error.what()));
    }
  }

  std::shared_ptr<Logger> logger_;
  FileDescriptor wake_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses the others
};

void hold_recording_requests() {
  if (!has_handler(SIGUSR1, SIG_DFL)) return;
  struct sigaction wakes = {};
  wakes.sa_handler = wake_writer;
  wakes.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&wakes.sa_mask);
  sigaction(SIGUSR1, &wakes, nullptr);
}

SignalRecording::SignalRecording(const Session& session) {
  hold_recording_requests();
  if (!has_handler(SIGUSR1, wake_writer)) return;
  try {
    writer_ = std::make_unique<Writer>(session.logger());
  } catch (const std::exception&) {
    return;  // no thread available: requests are dropped
  }
  wake_on_signal.store(writer_->wake());
  if (is_requested.load()) eventfd_write(writer_->wake(), 1);  // a request from before
  trace::note_process(trace::recorded_rank().job, {});
}

SignalRecording::~SignalRecording() {
  if (writer_ == nullptr) return;
  if (has_handler(SIGUSR1, wake_writer)) {
    // Not the default action, which would end the program on a late signal.
    struct sigaction ignored = {};
    ignored.sa_handler = SIG_IGN;
    sigaction(SIGUSR1, &ignored, nullptr);
  }
  wake_on_signal.store(-1);  // its descriptor may soon be that of a file
  trace::remove_process_note();
}

}  // namespace lockstep::inline v0::job
