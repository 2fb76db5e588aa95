#include "lockstep/allreduce/communication_thread.h"

#include <utility>

#include "lockstep/base/system/process.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::allreduce {

CommunicationThread::CommunicationThread()
    : thread_(start_thread("the reductions", [this] { work(); })) {}

CommunicationThread::~CommunicationThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  submitted_.notify_one();
  thread_.join();
}

void CommunicationThread::submit(std::function<void()> operation) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    operations_.push_back(std::move(operation));
  }
  submitted_.notify_one();
}

void CommunicationThread::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return operations_.empty(); });
  if (error_) std::rethrow_exception(error_);
}

void CommunicationThread::work() {
  trace::name_thread("reductions");
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return ends_ || !operations_.empty(); });
    if (operations_.empty()) return;
    const std::function<void()>& operation =
        operations_.front();  // not moved while others are added
    lock.unlock();
    std::exception_ptr error;
    try {
      operation();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = std::move(error);
      operations_.clear();
    } else {
      operations_.pop_front();
    }
    if (operations_.empty()) done_.notify_all();
  }
}

}  // namespace lockstep::inline v0::allreduce
