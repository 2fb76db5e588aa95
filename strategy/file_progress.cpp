#include "strategy/file_progress.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep::strategy {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};

thread_local FileProgress* current = nullptr;

}  // namespace

class FileProgress::Ticker {
 public:
  Ticker(allreduce::Activity& activity, std::chrono::milliseconds patience) : activity_(activity), patience_(patience) {
    note();
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    } catch (const std::system_error&) {
      // Without a thread, completed operations still tick.
    }
  }

  void note() {
    last_note_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    activity_.tick();
  }

 private:
  void run(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, stop, kTick, [&] { return stop.stop_requested(); })) {
      const Clock::time_point last{Clock::duration(last_note_.load(std::memory_order_relaxed))};
      if (Clock::now() - last <= patience_) activity_.tick();
    }
  }

  allreduce::Activity& activity_;
  std::chrono::milliseconds patience_;
  std::atomic<Clock::rep> last_note_{0};
  std::jthread thread_;  // the last member: it ends before the others
};

FileProgress::FileProgress(allreduce::Activity* activity, std::chrono::milliseconds patience)
    : outer_(std::exchange(current, this)) {
  if (activity != nullptr) ticker_ = std::make_unique<Ticker>(*activity, patience);
}

FileProgress::~FileProgress() { current = outer_; }

void note_file_progress() {
  if (current != nullptr && current->ticker_ != nullptr) current->ticker_->note();
}

}  // namespace lockstep::strategy
