#include "lockstep/allreduce/transport/barrier.h"

#include <fmt/format.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/trace/events.h"
#include "lockstep/device/buffer.h"

namespace lockstep::inline v0::allreduce {

static_assert(sizeof(FutexWord) == sizeof(std::uint32_t) && FutexWord::is_always_lock_free);

void sleep_while(const FutexWord& word, std::uint32_t expected, std::chrono::nanoseconds longest) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec timeout{static_cast<std::time_t>(seconds.count()),
                         static_cast<long>((longest - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void wake_sleepers(const FutexWord& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kPolls = 2000;  // a few microseconds: the usual delay of the other members
// Replicas of a training step usually arrive within this time of each other; sleep and wake-up
// would take longer.
constexpr auto kYieldFor = 2ms;
// If members share cores, the other member may need this one.
constexpr int kPollsWhenSharing = 50;
constexpr auto kYieldWhenSharing = 2us;
constexpr auto kLongestSleep = 10ms;  // between two checks of the group

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// A text in shared memory; truncated if too long.
template <std::size_t size>
struct Text {
  std::array<char, size> characters;

  void write(std::string_view text) {
    const std::size_t length = std::min(text.size(), size - 1);
    std::copy_n(text.data(), length, characters.data());
    characters[length] = '\0';
  }
  std::string read() const { return characters.data(); }
};

// Processes that share memory are in one PID namespace.
bool is_alive(std::uint32_t process) {
  return kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH;
}

}  // namespace

// The data of a member for one round, in one cache line. A member has two lines and alternates: it
// may write to the next line while others still read this one. It reuses this line only after all
// members have arrived at the next round, and so have finished reading this one.
struct alignas(kCacheLine) Barrier::Line {
  FutexWord round;     // the last round in which the member has arrived with this line
  FutexWord sleepers;  // number of members that may be asleep until it arrives
  Call call;
  Place place;
};

struct alignas(kCacheLine) Barrier::Board {
  static constexpr std::uint32_t kFine = 0;
  static constexpr std::uint32_t kFailed = ~0U;

  std::atomic<std::uint32_t>
      state;  // kFine, kFailed, or the id of the process that writes the failure
  Text<128> where;
  Text<1024> expected;
  Text<2048> actual;
};

std::size_t Barrier::bytes_for(int members) {
  static_assert(sizeof(Line) == kCacheLine);
  return round_up(sizeof(Board)) +
         static_cast<std::size_t>(members) * 2 * (sizeof(Line) + kNoteBytes);
}

// Zeroed memory is a board without a failure and lines of members that have not arrived.
Barrier::Barrier(std::shared_ptr<std::byte> memory, int members, int member, BarrierOptions options)
    : memory_(std::move(memory)),
      board_(std::launder(reinterpret_cast<Board*>(memory_.get()))),
      members_(members),
      member_(member),
      options_(std::move(options)) {
  if (!options_.numbers.empty()) return;
  options_.numbers.resize(members);
  std::iota(options_.numbers.begin(), options_.numbers.end(), 0);
}

Barrier::Line& Barrier::line(int member, std::uint32_t round) const {
  auto* lines = reinterpret_cast<Line*>(memory_.get() + round_up(sizeof(Board)));
  return *std::launder(lines + 2 * static_cast<std::size_t>(member) + round % 2);
}

const Call& Barrier::call(int member) const { return line(member, round_).call; }
const Place& Barrier::place(int member) const { return line(member, round_).place; }

std::byte* Barrier::note_at(int member, std::uint32_t round) const {
  const std::size_t lines = 2 * static_cast<std::size_t>(members_) * sizeof(Line);
  return memory_.get() + round_up(sizeof(Board)) + lines +
         (2 * static_cast<std::size_t>(member) + round % 2) * kNoteBytes;
}

void Barrier::start(const Call& call, const Place& place) {
  // After a failure members are not synchronized and could write to a line that others still read.
  throw_if_failed();
  Line& mine = line(member_, round_ + 1);
  mine.call = call;
  mine.place = place;
  arrive();
}

bool Barrier::poll() {
  for (; arrived_ < members_; ++arrived_) {
    const Line& next = line((member_ + arrived_) % members_, round_);
    if (has_arrived(next)) continue;
    report_dead_writer();
    throw_if_failed_without(next);
    return false;
  }
  compare();
  return true;
}

void Barrier::exchange(const Call& call, const Place& place) {
  start(call, place);
  wait_for_others();
  compare();
}

void Barrier::compare() const {
  const Call& first = call(0);
  for (int member = 1; member < members_; ++member) {
    if (is_same(first, call(member))) continue;
    std::vector<Call> calls;
    for (int each = 0; each < members_; ++each) calls.push_back(call(each));
    const auto difference = find_difference(calls, options_.numbers);
    LOCKSTEP_CHECK(difference.has_value());
    fail(*difference);
    throw Error(ErrorCategory::communication, *difference);
  }
}

void Barrier::wait() {
  arrive();
  wait_for_others();
}

void Barrier::wait_for_others() {
  for (; arrived_ < members_; ++arrived_) wait_for(line((member_ + arrived_) % members_, round_));
}

void Barrier::arrive() {
  ++round_;
  arrived_ = 1;
  Line& mine = line(member_, round_);
  // A sleeper increments `sleepers` before its last check of `round`. So either this member sees
  // the sleeper, or the sleeper sees the new round.
  mine.round.store(round_, std::memory_order_seq_cst);
  if (mine.sleepers.load(std::memory_order_seq_cst) != 0) wake_sleepers(mine.round);
}

// A member may be one round ahead, which uses its other line, but not two.
bool Barrier::has_arrived(const Line& line) const {
  return line.round.load(std::memory_order_acquire) == round_;
}

void Barrier::wait_for(Line& line) {
  const int polls = options_.own_cores ? kPolls : kPollsWhenSharing;
  for (int poll = 0; poll < polls; ++poll)
    if (has_arrived(line)) return;
  const trace::Span span("wait for others");
  const Clock::time_point begin = Clock::now();
  wait_long_for(line, begin);
  waited_ += Clock::now() - begin;
}

void Barrier::wait_long_for(Line& line, std::chrono::steady_clock::time_point begin) const {
  const auto deadline =
      begin + (options_.own_cores ? Clock::duration(kYieldFor) : kYieldWhenSharing);
  do {
    std::this_thread::yield();
    if (has_arrived(line)) return;
    throw_if_failed_without(line);
  } while (Clock::now() < deadline);
  while (!has_arrived(line)) {
    report_dead_writer();
    throw_if_failed_without(line);
    if (options_.poll_group) options_.poll_group();
    line.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = line.round.load(std::memory_order_seq_cst);
    if (seen != round_) sleep_while(line.round, seen, kLongestSleep);
    line.sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
}

void Barrier::throw_if_failed() const {
  if (board_->state.load(std::memory_order_acquire) == Board::kFailed)
    throw Error(ErrorCategory::communication, *failure());
}

// A member may fail as soon as it has seen that all have arrived, before this one has.
void Barrier::throw_if_failed_without(const Line& line) const {
  if (board_->state.load(std::memory_order_acquire) == Board::kFailed && !has_arrived(line))
    throw_if_failed();
}

// If a process is killed while it writes a failure, the member that detects this writes one
// instead.
void Barrier::report_dead_writer() const {
  const std::uint32_t writer = board_->state.load(std::memory_order_acquire);
  if (writer == Board::kFine || writer == Board::kFailed || is_alive(writer)) return;
  fail({"all_reduce", fmt::format("expected all {} members of the group", members_),
        fmt::format("process {} ended while it reported a failure", writer)});
}

void Barrier::fail(const ErrorMessage& failure) const {
  const auto me = static_cast<std::uint32_t>(getpid());
  for (std::uint32_t now = Board::kFine; !board_->state.compare_exchange_strong(now, me);)
    if (now == Board::kFailed || is_alive(now)) return;
  board_->where.write(failure.where);
  board_->expected.write(failure.expected);
  board_->actual.write(failure.actual);
  board_->state.store(Board::kFailed, std::memory_order_seq_cst);
  for (int member = 0; member < members_; ++member)
    for (std::uint32_t round : {0U, 1U}) wake_sleepers(line(member, round).round);
}

std::optional<ErrorMessage> Barrier::failure() const {
  if (board_->state.load(std::memory_order_acquire) != Board::kFailed) return std::nullopt;
  return ErrorMessage{board_->where.read(), board_->expected.read(), board_->actual.read()};
}

std::vector<Barrier> make_barrier_of_threads(int members, int first_number) {
  const auto buffer = std::make_shared<device::Buffer>(
      device::HostAllocator().allocate(Barrier::bytes_for(members)));
  const std::shared_ptr<std::byte> memory(buffer, static_cast<std::byte*>(buffer->data()));
  BarrierOptions options;
  options.numbers.resize(members);
  std::iota(options.numbers.begin(), options.numbers.end(), first_number);
  options.own_cores = members <= available_cores();
  std::vector<Barrier> participants;
  for (int member = 0; member < members; ++member)
    participants.emplace_back(memory, members, member, options);
  return participants;
}

bool any_flag(const Barrier& barrier) {
  for (int member = 0; member < barrier.size(); ++member)
    if (barrier.call(member).flag) return true;
  return false;
}

}  // namespace lockstep::inline v0::allreduce
