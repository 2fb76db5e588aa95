#include "lockstep/allreduce/transport/mpi_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <mutex>
#include <numeric>

#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr int kTag = 0;
constexpr std::size_t kLongestNotice =
    2000;  // short enough for an eager send, which needs no receiver
constexpr const char* kWaiting =
    "wait for others";  // from the announcement of this call until all calls are known
constexpr std::size_t kLargestMessage = std::size_t{1} << 26;  // bytes per message of a broadcast

/// The memory of an MPI collective. Collectives cannot be canceled, so the memory is leaked unless
/// release() is called: MPI may still write to it.
template <typename Memory>
class Lease {
 public:
  Lease() : memory_(std::make_unique<Memory>()) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    if (!is_released_) static_cast<void>(memory_.release());
  }
  Memory* operator->() const { return memory_.get(); }
  void release() { is_released_ = true; }

 private:
  std::unique_ptr<Memory> memory_;
  bool is_released_ = false;
};

/// One part for each rank, one after another.
struct Parts {
  std::vector<int> counts;
  std::vector<int> offsets;
  std::vector<std::byte> bytes;

  void place() {
    offsets.resize(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
    bytes.resize(static_cast<std::size_t>(offsets.back() + counts.back()));
  }
  std::vector<std::vector<std::byte>> separate() const {
    std::vector<std::vector<std::byte>> all;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const auto begin = bytes.begin() + offsets[rank];
      all.emplace_back(begin, begin + counts[rank]);
    }
    return all;
  }
};

struct Gathering {
  std::vector<std::byte> mine;
  Parts all;
  MPI_Request request = MPI_REQUEST_NULL;
};

struct Exchange {
  Parts sent;
  Parts received;
  MPI_Request request = MPI_REQUEST_NULL;
};

/// MPI counts are int. All ranks know all counts, so all throw the same error.
void check_total(const std::vector<Call>& calls, const char* name) {
  std::size_t total = 0;
  for (const Call& call : calls) total += call.count;
  if (total > static_cast<std::size_t>(INT_MAX))
    throw Error(
        ErrorCategory::input, name,
        fmt::format("expected at most {} bytes over all ranks together in one call", INT_MAX),
        fmt::format("got {}", total));
}

struct Piece {
  std::vector<std::byte> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

bool mpi_is_over() {
  int over = 0;
  MPI_Finalized(&over);
  return over != 0;
}

MPI_Comm duplicate(MPI_Comm ranks) {
  MPI_Comm copy = MPI_COMM_NULL;
  const int status = MPI_Comm_dup(ranks, &copy);
  if (status != MPI_SUCCESS)
    throw Error(ErrorCategory::communication, "mpi", "expected a communicator",
                fmt::format("MPI error {}", status));
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

}  // namespace

std::timed_mutex& mpi_turn() {
  static std::timed_mutex turn;
  return turn;
}

/// Failures that a thread could not send to other ranks because another thread was in MPI. Shared
/// by all groups of the process, because that thread may be in MPI for another group.
class MpiGroup::PendingFailures {
 public:
  static PendingFailures& of_process() {
    static PendingFailures& all =
        *new PendingFailures;  // leaked, for groups that are destroyed after static objects
    return all;
  }

  void add(MpiGroup& group, const ErrorMessage& failure) {
    const std::lock_guard lock(mutex_);
    failures_.emplace_back(&group, failure);
    has_any_.store(true, std::memory_order_release);
  }
  void remove(const MpiGroup& group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(failures_, [&](const auto& one) { return one.first == &group; });
  }
  /// Called by the thread that holds mpi_turn().
  void broadcast_failure() {
    if (!has_any_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    has_any_.store(false, std::memory_order_release);
    // In order, so that the first failure of a group stays.
    for (const auto& [group, failure] : failures_) group->broadcast_failure(failure);
    failures_.clear();
  }
  /// Called by a thread that is not in MPI.
  void broadcast_if_mpi_is_free() {
    if (!has_any_.load(std::memory_order_acquire)) return;
    const std::unique_lock turn(mpi_turn(), std::try_to_lock);
    if (turn.owns_lock()) broadcast_failure();
  }

 private:
  std::atomic<bool> has_any_{false};
  std::mutex mutex_;
  std::vector<std::pair<MpiGroup*, ErrorMessage>> failures_;
};

MpiGroup::MpiGroup(MPI_Comm ranks, std::size_t small_bytes)
    : comm_(duplicate(ranks)),
      failures_(duplicate(ranks)),
      small_bytes_(small_bytes),
      exchange_(comm_, small_bytes) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  numbers_.resize(size_);
  std::iota(numbers_.begin(), numbers_.end(), 0);
}

MpiGroup::~MpiGroup() {
  PendingFailures::of_process().broadcast_if_mpi_is_free();
  PendingFailures::of_process().remove(*this);
  // MPI_Comm_free is collective, so it may hang after a failure.
  if (!is_usable()) return;
  const std::lock_guard turn(mpi_turn());
  MPI_Comm_free(&failures_);
  MPI_Comm_free(&comm_);
}

bool MpiGroup::is_usable() const { return !failure_ && !mpi_is_over(); }

void MpiGroup::check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  raise({"mpi", fmt::format("expected {} to succeed on rank {}", call, rank_), text.data()});
}

void MpiGroup::raise(const ErrorMessage& failure) {
  broadcast_failure(failure);
  throw Error(ErrorCategory::communication, *failure_);
}

class MpiGroup::Operation {
 public:
  Operation() : turn_(mpi_turn()) { PendingFailures::of_process().broadcast_failure(); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() {
    turn_.unlock();
    // A failure may have been added after the last check of this operation.
    PendingFailures::of_process().broadcast_if_mpi_is_free();
  }

 private:
  std::unique_lock<std::timed_mutex> turn_;
};

void MpiGroup::fail(const ErrorMessage& failure) {
  PendingFailures::of_process().add(*this, failure);
  PendingFailures::of_process().broadcast_if_mpi_is_free();
}

void MpiGroup::broadcast_failure(const ErrorMessage& failure) {
  if (failure_) return;
  failure_ = failure;
  publish_failure(failure);
  const std::string& notice = *new std::string(
      failure.pack().substr(0, kLongestNotice));  // leaked, because MPI may still send it
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(notice.data(), static_cast<int>(notice.size()), MPI_BYTE, rank, kTag, failures_,
                  &request) == MPI_SUCCESS)
      MPI_Request_free(&request);
  }
}

void MpiGroup::receive_failure() {
  PendingFailures::of_process().broadcast_failure();
  if (failure_) throw Error(ErrorCategory::communication, *failure_);
  int arrived = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, kTag, failures_, &arrived, &status), "MPI_Iprobe");
  if (arrived == 0) return;
  int length = 0;
  MPI_Get_count(&status, MPI_BYTE, &length);
  std::string text(static_cast<std::size_t>(length), ' ');
  MPI_Recv(text.data(), length, MPI_BYTE, status.MPI_SOURCE, kTag, failures_, MPI_STATUS_IGNORE);
  // The failed rank has sent it to all ranks, so it is not forwarded.
  failure_ = ErrorMessage::unpack(text);
  publish_failure(*failure_);
  throw Error(ErrorCategory::communication, *failure_);
}

void MpiGroup::raise_known(ErrorMessage failure) {
  if (!failure_) failure_ = std::move(failure);
  throw Error(ErrorCategory::communication, *failure_);
}

const std::vector<Call>& MpiGroup::compare(const Call& call) {
  announce(call);
  return agree();
}

void MpiGroup::announce(const Call& call, const std::byte* values) {
  if (failure_) throw Error(ErrorCategory::communication, *failure_);
  announced_ = std::chrono::steady_clock::now();
  trace::record(trace::EventKind::begin, kWaiting);
  Call mine = call;
  mine.last_seconds = last_seconds_;
  exchange_.start(mine, values);
  is_comparing_ = true;
}

bool MpiGroup::agreed() {
  if (!is_comparing_) return true;
  exchange_.advance();
  check(exchange_.status(), "a message between ranks");
  if (!exchange_.is_done()) return false;
  is_comparing_ = false;
  count_waiting();
  trace::record(trace::EventKind::end, kWaiting);
  // All members find the same difference independently.
  if (auto difference = find_difference(exchange_.calls(), numbers_))
    raise_known(*std::move(difference));
  return true;
}

// The last member to arrive waits only for messages, and all others wait for them equally long. The
// remaining time of the others is spent on waiting for members.
void MpiGroup::count_waiting() {
  double shortest = last_seconds_;
  for (const Call& call : exchange_.calls()) shortest = std::min(shortest, call.last_seconds);
  waited_ += last_seconds_ - shortest;
  last_seconds_ = seconds_since(announced_);
}

const std::vector<Call>& MpiGroup::agree() {
  wait_until_done([this] { return agreed() ? Progress::done : Progress::none; });
  return exchange_.calls();
}

void MpiGroup::reduce_with_calls(const Values& values, ReduceOp op) {
  announce(Call::all_reduce(values, op), values.data);
  agree();
  if (values.count > 0) std::memcpy(values.data, exchange_.result(), bytes_of(values));
}

void MpiGroup::wait(MPI_Request& request) {
  wait_until_done([&] {
    int complete = 0;
    check(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
    return complete != 0 ? Progress::done : Progress::none;
  });
}

void MpiGroup::throw_if_failed() {
  const Operation operation;
  receive_failure();
}

std::unique_ptr<PendingOperation> MpiGroup::all_reduce(const Values& values, ReduceOp op) {
  const Operation operation;
  if (bytes_of(values) <= small_bytes_ && small_bytes_ > 0)
    reduce_with_calls(values, op);
  else
    run_all_reduce(values, op);
  return nullptr;
}

std::unique_ptr<PendingOperation> MpiGroup::reduce_scatter(const Values& values, ReduceOp op) {
  const Operation operation;
  run_reduce_scatter(values, op);
  return nullptr;
}

std::unique_ptr<PendingOperation> MpiGroup::gather_slices(const Values& values) {
  const Operation operation;
  run_gather_slices(values);
  return nullptr;
}

void MpiGroup::broadcast(std::span<std::byte> values, int root) {
  const Operation operation;
  compare(Call::broadcast(values.size(), root));
  for (std::size_t begin = 0; begin < values.size(); begin += kLargestMessage) {
    const auto part = values.subspan(begin, std::min(kLargestMessage, values.size() - begin));
    Lease<Piece> piece;
    piece->bytes.assign(part.begin(), part.end());
    check(MPI_Ibcast(piece->bytes.data(), static_cast<int>(part.size()), MPI_BYTE, root, comm_,
                     &piece->request),
          "MPI_Ibcast");
    wait(piece->request);
    piece.release();
    std::ranges::copy(piece->bytes, part.begin());
  }
}

std::vector<std::vector<std::byte>> MpiGroup::all_gather(std::span<const std::byte> mine) {
  const Operation operation;
  const std::vector<Call>& calls = compare(Call::all_gather(mine.size()));
  check_total(calls, "all_gather");
  Lease<Gathering> gathering;
  gathering->mine.assign(mine.begin(), mine.end());
  for (const Call& call : calls) gathering->all.counts.push_back(static_cast<int>(call.count));
  gathering->all.place();
  check(MPI_Iallgatherv(gathering->mine.data(), static_cast<int>(mine.size()), MPI_BYTE,
                        gathering->all.bytes.data(), gathering->all.counts.data(),
                        gathering->all.offsets.data(), MPI_BYTE, comm_, &gathering->request),
        "MPI_Iallgatherv");
  wait(gathering->request);
  gathering.release();
  return gathering->all.separate();
}

std::vector<std::vector<std::byte>> MpiGroup::all_to_all(
    std::span<const std::span<const std::byte>> parts) {
  const Operation operation;
  std::size_t total = 0;
  for (const auto& part : parts) total += part.size();
  check_total(compare(Call::all_to_all(total)), "all_to_all");
  Lease<Exchange> exchange;
  for (const auto& part : parts) exchange->sent.counts.push_back(static_cast<int>(part.size()));
  exchange->sent.place();
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    std::ranges::copy(parts[rank], exchange->sent.bytes.begin() + exchange->sent.offsets[rank]);
  exchange->received.counts.resize(parts.size());
  check(MPI_Ialltoall(exchange->sent.counts.data(), 1, MPI_INT, exchange->received.counts.data(), 1,
                      MPI_INT, comm_, &exchange->request),
        "MPI_Ialltoall");
  wait(exchange->request);
  exchange->received.place();
  check(MPI_Ialltoallv(exchange->sent.bytes.data(), exchange->sent.counts.data(),
                       exchange->sent.offsets.data(), MPI_BYTE, exchange->received.bytes.data(),
                       exchange->received.counts.data(), exchange->received.offsets.data(),
                       MPI_BYTE, comm_, &exchange->request),
        "MPI_Ialltoallv");
  wait(exchange->request);
  exchange.release();
  return exchange->received.separate();
}

void MpiGroup::barrier() {
  const Operation operation;
  compare(Call::barrier());
}

bool MpiGroup::any(bool mine) {
  const Operation operation;
  return std::ranges::any_of(compare(Call::any(mine)), [](const Call& call) { return call.flag; });
}

}  // namespace lockstep::inline v0::allreduce
