#include "lockstep/allreduce/letters/letter_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLongestPause = 1ms;
constexpr auto kShortestPause = 10us;
constexpr auto kEndPatience = 1s;
const ErrorMessage kEnded{"message", "expected it before the end of the session",
                          "the session has ended"};

void require_member(int member, int first, const Transport& transport, const char* function) {
  if (member < first || member >= transport.size() || member == transport.rank())
    throw Error(ErrorCategory::input, function,
                fmt::format("expected another rank, from 0 to {}", transport.size() - 1),
                fmt::format("got {} on rank {}", member, transport.rank()));
}

void throw_if_failed(const Letter& letter) {
  if (letter.error) throw Error(ErrorCategory::communication, *letter.error);
}

}  // namespace

LetterThread::LetterThread(std::shared_ptr<Transport> transport)
    : transport_(std::move(transport)), letters_(*transport_), thread_([this] { work(); }) {}

LetterThread::~LetterThread() { end(); }

void LetterThread::end() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ends_, true)) return;
  }
  started_.notify_one();
  thread_.join();
  transport_->turn().drop(this);
  const std::lock_guard lock(mutex_);
  for (; !new_.empty(); new_.pop_front()) letters_.add(new_.front());
  letters_.fail(kEnded);
  done_.notify_all();
}

std::shared_ptr<Letter> LetterThread::send(int to, std::int32_t tag,
                                           std::span<const std::byte> bytes) {
  require_member(to, 0, *transport_, "send");
  Letter letter{.is_sent = true, .member = to, .tag = tag};
  letter.memory = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  return add(std::make_shared<Letter>(letter));
}

std::shared_ptr<Letter> LetterThread::receive(int from, std::int32_t tag,
                                              std::span<std::byte> memory) {
  require_member(from, kAnySource, *transport_, "receive");
  return add(std::make_shared<Letter>(Letter{.member = from, .tag = tag, .memory = memory}));
}

std::shared_ptr<Letter> LetterThread::add(std::shared_ptr<Letter> letter) {
  {
    const std::lock_guard lock(mutex_);
    if (ends_) throw Error(ErrorCategory::communication, kEnded);
    new_.push_back(letter);
  }
  started_.notify_one();
  return letter;
}

void LetterThread::wait(const Letter& letter) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return letter.is_done; });
  throw_if_failed(letter);
}

bool LetterThread::test(const Letter& letter) {
  const std::lock_guard lock(mutex_);
  throw_if_failed(letter);
  return letter.is_done;
}

void LetterThread::fail(const ErrorMessage& failure) {
  const std::lock_guard lock(mutex_);
  letters_.fail(failure);
  done_.notify_all();
}

/// Called with the turn. Returns whether anything has happened.
bool LetterThread::move() {
  const std::lock_guard lock(mutex_);
  bool has_moved = !new_.empty();
  for (; !new_.empty(); new_.pop_front()) letters_.add(new_.front());
  has_moved = letters_.advance() || has_moved;
  if (has_moved) done_.notify_all();
  return has_moved;
}

void LetterThread::work() {
  Clock::duration pause = kShortestPause;
  Clock::time_point end = Clock::time_point::max();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      started_.wait(lock, [&] { return ends_ || !new_.empty() || !letters_.is_idle(); });
      if (ends_ && end == Clock::time_point::max()) end = Clock::now() + kEndPatience;
      if (ends_ && (Clock::now() >= end || (new_.empty() && letters_.is_idle()))) return;
    }
    Turn& turn = transport_->turn();
    std::unique_lock mine(turn.mutex, std::try_to_lock);
    bool has_moved = false;
    if (mine.owns_lock()) {
      turn.run_left();
      has_moved = move();
      mine.unlock();
    } else {
      turn.leave(this, [this] { move(); });
    }
    pause = has_moved ? kShortestPause : std::min<Clock::duration>(2 * pause, kLongestPause);
    if (!has_moved) std::this_thread::sleep_for(pause);
  }
}

}  // namespace lockstep::inline v0::allreduce
