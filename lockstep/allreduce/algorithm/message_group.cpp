#include "lockstep/allreduce/algorithm/message_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/allreduce/algorithm/pairwise_exchange.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::allreduce {
namespace {

// Short enough to be sent before anybody receives it.
constexpr std::size_t kLongestNotice = 2000;
constexpr const char* kWaiting =
    "wait for others";  // from the announcement of this call until all calls are known

}  // namespace

MessageGroup::MessageGroup(std::shared_ptr<Transport> transport, const RingOptions& options)
    : transport_(std::move(transport)),
      options_(options),
      numbers_(static_cast<std::size_t>(transport_->size())),
      exchange_(*transport_, options.small_bytes) {
  LOCKSTEP_CHECK_OP(options.segment_bytes % kCacheLine, ==, 0U);
  LOCKSTEP_CHECK_OP(options.segment_bytes, >, 0U);
  LOCKSTEP_CHECK_OP(options.segments_in_flight, >, 0U);
  std::iota(numbers_.begin(), numbers_.end(), 0);
}

MessageGroup::~MessageGroup() {
  transport_->turn().run_left_if_free();
  transport_->turn().drop(this);
  if (failure_) transport_->abandon();
}

// The right to use the transport, until the end of an operation.
class MessageGroup::Operation {
 public:
  explicit Operation(MessageGroup& group) : turn_(group.transport_->turn()), lock_(turn_.mutex) {
    turn_.run_left();
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() {
    lock_.unlock();
    // A failure may have been left after the last check of this operation.
    turn_.run_left_if_free();
  }

 private:
  Turn& turn_;
  std::unique_lock<std::timed_mutex> lock_;
};

device::Buffer MessageGroup::allocate(std::size_t bytes) {
  return buffers_.keep(GroupMember::allocate(bytes));
}

void MessageGroup::raise(const ErrorMessage& failure) {
  broadcast_failure(failure);
  throw Error(ErrorCategory::communication, *failure_);
}

void MessageGroup::fail(const ErrorMessage& failure) {
  transport_->turn().leave(this, [this, failure] { broadcast_failure(failure); });
}

void MessageGroup::broadcast_failure(const ErrorMessage& failure) {
  if (failure_) return;
  failure_ = failure;
  publish_failure(failure);
  if (!transport_->is_open()) return;
  const std::string notice = failure.pack().substr(0, kLongestNotice);
  notices_.reserve(static_cast<std::size_t>(size()), kLongestNotice);
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == this->rank()) continue;
    const auto slot = static_cast<std::size_t>(rank);
    std::memcpy(notices_.slot(slot), notice.data(), notice.size());
    try {
      notices_.message(slot) =
          transport_->send(rank, Tag::failure, notices_.memory(slot).first(notice.size()));
    } catch (const Error&) {  // that member is lost; the others are told
    }
  }
}

void MessageGroup::receive_failure() {
  transport_->turn().run_left();
  if (failure_) throw Error(ErrorCategory::communication, *failure_);
  const std::optional<Arrival> arrival = transport_->probe(Tag::failure);
  if (!arrival) return;
  notices_.reserve(static_cast<std::size_t>(size()), kLongestNotice);
  const std::size_t slot = 0;
  notices_.message(slot) =
      transport_->receive(arrival->from, Tag::failure, notices_.memory(slot).first(kLongestNotice));
  while (!transport_->poll(notices_.message(slot))) continue;  // it has arrived
  // The failed member has sent it to all, so it is not forwarded.
  failure_ =
      ErrorMessage::unpack({reinterpret_cast<const char*>(notices_.slot(slot)), arrival->bytes});
  publish_failure(*failure_);
  throw Error(ErrorCategory::communication, *failure_);
}

void MessageGroup::raise_known(ErrorMessage failure) {
  if (!failure_) failure_ = std::move(failure);
  throw Error(ErrorCategory::communication, *failure_);
}

const std::vector<Call>& MessageGroup::compare(const Call& call) {
  announce(call);
  return agree();
}

void MessageGroup::announce(const Call& call, const std::byte* values) {
  if (failure_) throw Error(ErrorCategory::communication, *failure_);
  announced_ = std::chrono::steady_clock::now();
  trace::record(trace::EventKind::begin, kWaiting);
  Call mine = call;
  mine.last_seconds = last_seconds_;
  try {
    exchange_.start(mine, values);
  } catch (const Error& error) {
    raise(error.message());
  }
  is_comparing_ = true;
}

bool MessageGroup::agreed() {
  if (!is_comparing_) return true;
  exchange_.advance();
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
void MessageGroup::count_waiting() {
  double shortest = last_seconds_;
  for (const Call& call : exchange_.calls()) shortest = std::min(shortest, call.last_seconds);
  waited_ += last_seconds_ - shortest;
  last_seconds_ = seconds_since(announced_);
}

const std::vector<Call>& MessageGroup::agree() {
  wait_until_done([this] { return agreed() ? Progress::done : Progress::none; });
  return exchange_.calls();
}

void MessageGroup::reduce_with_calls(const Values& values, ReduceOp op) {
  announce(Call::all_reduce(values, op), values.data);
  agree();
  if (values.count > 0) std::memcpy(values.data, exchange_.result(), bytes_of(values));
}

void MessageGroup::throw_if_failed() {
  const Operation operation(*this);
  receive_failure();
}

std::unique_ptr<PendingOperation> MessageGroup::all_reduce(const Values& values, ReduceOp op) {
  const Operation operation(*this);
  if (bytes_of(values) <= options_.small_bytes && options_.small_bytes > 0)
    reduce_with_calls(values, op);
  else
    run_all_reduce(values, op);
  return nullptr;
}

std::unique_ptr<PendingOperation> MessageGroup::reduce_scatter(const Values& values, ReduceOp op) {
  const Operation operation(*this);
  run_reduce_scatter(values, op);
  return nullptr;
}

std::unique_ptr<PendingOperation> MessageGroup::gather_slices(const Values& values) {
  const Operation operation(*this);
  run_gather_slices(values);
  return nullptr;
}

void MessageGroup::run_ring(Transport& transport, const Values& values, ReduceOp op,
                            RingReduction::Part part) {
  RingReduction reduction(transport, values, op, part, options_, buffers_);
  run_checked(reduction);
}

void MessageGroup::run_all_reduce(const Values& values, ReduceOp op) {
  announce(Call::all_reduce(values, op));
  run_ring(*transport_, values, op, RingReduction::Part::all);
}

void MessageGroup::run_reduce_scatter(const Values& values, ReduceOp op) {
  announce(Call::reduce_scatter(values, op));
  run_ring(*transport_, values, op, RingReduction::Part::reduce_scatter);
}

void MessageGroup::run_gather_slices(const Values& values) {
  announce(Call::gather_slices(values));
  run_ring(*transport_, values, ReduceOp::sum, RingReduction::Part::all_gather);
}

// Each member has one chunk of `all`, or nothing; then every member has all of them.
void MessageGroup::gather_chunks(std::span<std::byte> all, std::vector<Slice> chunks) {
  RingReduction ring(*transport_, {all.data(), all.size(), ElementType::uint8}, ReduceOp::sum,
                     RingReduction::Part::all_gather, options_, buffers_, std::move(chunks));
  run_checked(ring);
}

void MessageGroup::broadcast(std::span<std::byte> values, int root) {
  const Operation operation(*this);
  compare(Call::broadcast(values.size(), root));
  std::vector<Slice> chunks(static_cast<std::size_t>(size()));
  chunks[static_cast<std::size_t>(root)] = {0, values.size()};
  gather_chunks(values, std::move(chunks));
}

std::vector<std::vector<std::byte>> MessageGroup::all_gather(std::span<const std::byte> mine) {
  const Operation operation(*this);
  std::vector<Slice> chunks;
  for (const Call& call : compare(Call::all_gather(mine.size()))) {
    const std::size_t begin = chunks.empty() ? 0 : chunks.back().end;
    chunks.push_back({begin, begin + call.count});
  }
  std::vector<std::byte> all(chunks.back().end);
  std::ranges::copy(mine, all.begin() + static_cast<std::ptrdiff_t>(
                                            chunks[static_cast<std::size_t>(rank())].begin));
  gather_chunks(all, chunks);
  std::vector<std::vector<std::byte>> parts;
  for (const Slice& chunk : chunks)
    parts.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(chunk.begin),
                       all.begin() + static_cast<std::ptrdiff_t>(chunk.end));
  return parts;
}

std::vector<std::vector<std::byte>> MessageGroup::all_to_all(
    std::span<const std::span<const std::byte>> parts) {
  const Operation operation(*this);
  const auto members = static_cast<std::size_t>(size());
  const auto me = static_cast<std::size_t>(rank());
  std::size_t total = 0;
  for (const auto& part : parts) total += part.size();
  compare(Call::all_to_all(total));
  // Row i: the sizes of what member i sends to each.
  std::vector<std::uint64_t> sizes(members * members);
  std::vector<Slice> rows;
  for (std::size_t member = 0; member < members; ++member) {
    const std::size_t begin = member * members * sizeof(std::uint64_t);
    rows.push_back({begin, begin + members * sizeof(std::uint64_t)});
    sizes[me * members + member] = parts[member].size();
  }
  gather_chunks(std::as_writable_bytes(std::span(sizes)), std::move(rows));
  std::vector<std::vector<std::byte>> received;
  for (std::size_t member = 0; member < members; ++member)
    received.emplace_back(sizes[member * members + me]);
  std::ranges::copy(parts[me], received[me].begin());
  PairwiseExchange exchange(*transport_, parts, received, options_, buffers_);
  run_checked(exchange);
  return received;
}

void MessageGroup::barrier() {
  const Operation operation(*this);
  compare(Call::barrier());
}

bool MessageGroup::any(bool mine) {
  const Operation operation(*this);
  return std::ranges::any_of(compare(Call::any(mine)), [](const Call& call) { return call.flag; });
}

std::shared_ptr<MessageGroup> make_ring(std::shared_ptr<Transport> transport,
                                        const RingOptions& options) {
  return std::make_shared<MessageGroup>(std::move(transport), options);
}

}  // namespace lockstep::inline v0::allreduce
