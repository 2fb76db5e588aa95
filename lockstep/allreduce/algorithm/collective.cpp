#include "lockstep/allreduce/algorithm/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/base/system/host.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::allreduce {
namespace {

// Short enough to be sent before anybody receives it.
constexpr std::size_t kLongestNotice = 2000;
constexpr const char* kWaiting =
    "wait for others";  // from the announcement of this call until all calls are known

}  // namespace

Collective::Collective(Transport& transport, const RingOptions& options)
    : transport_(transport),
      options_(options),
      numbers_(static_cast<std::size_t>(transport.size())),
      exchange_(transport, options.small_bytes) {
  LOCKSTEP_CHECK_OP(options.segment_bytes % kCacheLine, ==, 0U);
  LOCKSTEP_CHECK_OP(options.segment_bytes, >, 0U);
  LOCKSTEP_CHECK_OP(options.segments_in_flight, >, 0U);
  std::iota(numbers_.begin(), numbers_.end(), 0);
}

bool Collective::is_small(const Values& values) const {
  return bytes_of(values) <= options_.small_bytes && options_.small_bytes > 0;
}

void Collective::announce(const Call& call, const std::byte* values, double now) {
  throw_if_failed();
  LOCKSTEP_CHECK(is_done());
  announced_ = now;
  trace::record(trace::EventKind::begin, kWaiting);
  Call mine = call;
  mine.last_seconds = last_seconds_;
  try {
    exchange_.start(mine, values);
  } catch (const Error& error) {
    broadcast_failure(error.message());
    throw_if_failed();
  }
  is_comparing_ = true;
}

void Collective::start(const Call& call, double now) { announce(call, nullptr, now); }

void Collective::start_all_reduce(const Values& values, ReduceOp op, double now) {
  if (is_small(values)) {
    announce(Call::all_reduce(values, op), values.data, now);
    with_calls_ = values;
  } else {
    start(Call::all_reduce(values, op), now);
    start_ring(transport_, values, op, RingReduction::Part::all);
  }
}

void Collective::start_reduce_scatter(const Values& values, ReduceOp op, double now) {
  start(Call::reduce_scatter(values, op), now);
  start_ring(transport_, values, op, RingReduction::Part::reduce_scatter);
}

void Collective::start_gather_slices(const Values& values, double now) {
  start(Call::gather_slices(values), now);
  start_ring(transport_, values, ReduceOp::sum, RingReduction::Part::all_gather);
}

void Collective::start_broadcast(std::span<std::byte> values, int root) {
  std::vector<Slice> chunks(static_cast<std::size_t>(transport_.size()));
  chunks[static_cast<std::size_t>(root)] = {0, values.size()};
  gather(values, std::move(chunks));
}

void Collective::start_all_gather(std::span<const std::byte> mine, std::span<const Call> calls) {
  chunks_.clear();
  for (const Call& call : calls) {
    const std::size_t begin = chunks_.empty() ? 0 : chunks_.back().end;
    chunks_.push_back({begin, begin + call.count});
  }
  gathered_.assign(chunks_.back().end, std::byte{});
  const Slice own = chunks_[static_cast<std::size_t>(transport_.rank())];
  std::ranges::copy(mine, gathered_.begin() + static_cast<std::ptrdiff_t>(own.begin));
  gather(gathered_, chunks_);
  then_ = Then::separate;
}

void Collective::start_all_to_all(std::span<const std::span<const std::byte>> parts) {
  // Row i: the sizes of what member i sends to each.
  const std::size_t members = parts.size();
  sizes_.assign(members * members, 0);
  std::vector<Slice> rows;
  for (std::size_t member = 0; member < members; ++member) {
    const std::size_t begin = member * members * sizeof(std::uint64_t);
    rows.push_back({begin, begin + members * sizeof(std::uint64_t)});
    sizes_[static_cast<std::size_t>(transport_.rank()) * members + member] = parts[member].size();
  }
  parts_ = parts;
  gather(std::as_writable_bytes(std::span(sizes_)), std::move(rows));
  then_ = Then::exchange;
}

void Collective::start_ring(Transport& transport, const Values& values, ReduceOp op,
                            RingReduction::Part part, std::vector<Slice> chunks) {
  ring_.emplace(transport, values, op, part, options_, buffers_, std::move(chunks));
}

bool Collective::advance(double now) {
  throw_if_failed();
  try {
    bool has_moved = false;
    if (is_comparing_) {
      has_moved = exchange_.advance();
      if (exchange_.is_done()) finish_comparison(now);
    }
    has_moved = move() || has_moved;
    if (!is_comparing_ && problem_) throw Error(ErrorCategory::communication, *problem_);
    return has_moved;
  } catch (const Error& error) {
    broadcast_failure(error.message());
    throw_if_failed();
    throw;
  }
}

void Collective::finish_comparison(double now) {
  is_comparing_ = false;
  count_waiting(now);
  trace::record(trace::EventKind::end, kWaiting);
  // All members find the same difference independently.
  if (const auto difference = find_difference(exchange_.calls(), numbers_)) {
    record_failure(*difference);
    throw_if_failed();
  }
  if (with_calls_.count > 0)
    std::memcpy(with_calls_.data, exchange_.result(), bytes_of(with_calls_));
  with_calls_ = {};
}

// The last member to arrive waits only for messages, and all others wait for them equally long. The
// remaining time of the others is spent on waiting for members.
void Collective::count_waiting(double now) {
  double shortest = last_seconds_;
  for (const Call& call : exchange_.calls()) shortest = std::min(shortest, call.last_seconds);
  waited_ += last_seconds_ - shortest;
  last_seconds_ = now - announced_;
}

bool Collective::move() {
  if (problem_) return false;
  try {
    if (ring_) {
      const bool has_moved = ring_->advance(!is_comparing_);
      if (!ring_->is_done()) return has_moved;
      ring_.reset();
      move_on();
      return true;
    }
    if (pairwise_) {
      const bool has_moved = pairwise_->advance();
      if (!pairwise_->is_done()) return has_moved;
      pairwise_.reset();
      return true;
    }
  } catch (const Error& error) {
    ring_.reset();
    pairwise_.reset();
    problem_ = error.message();
  }
  return false;
}

// What follows a ring.
void Collective::move_on() {
  const Then then = std::exchange(then_, Then::nothing);
  if (then == Then::nothing) return;
  received_.clear();
  if (then == Then::separate) {
    for (const Slice& chunk : chunks_)
      received_.emplace_back(gathered_.begin() + static_cast<std::ptrdiff_t>(chunk.begin),
                             gathered_.begin() + static_cast<std::ptrdiff_t>(chunk.end));
    return;
  }
  const auto me = static_cast<std::size_t>(transport_.rank());
  for (std::size_t member = 0; member < parts_.size(); ++member)
    received_.emplace_back(sizes_[member * parts_.size() + me]);
  std::ranges::copy(parts_[me], received_[me].begin());
  pairwise_.emplace(transport_, parts_, received_, options_, buffers_);
}

// Each member has one chunk of `all`, or nothing; then every member has all of them.
void Collective::gather(std::span<std::byte> all, std::vector<Slice> chunks) {
  start_ring(transport_, {all.data(), all.size(), ElementType::uint8}, ReduceOp::sum,
             RingReduction::Part::all_gather, std::move(chunks));
}

void Collective::record_failure(const ErrorMessage& failure) {
  if (!failure_) failure_ = failure;
}

void Collective::throw_if_failed() const {
  if (failure_) throw Error(ErrorCategory::communication, *failure_);
}

void Collective::broadcast_failure(const ErrorMessage& failure) {
  if (failure_) return;
  failure_ = failure;
  if (!transport_.is_open()) return;
  // The number of completed operations, and the failure.
  std::string notice(sizeof(completed_), '\0');
  std::memcpy(notice.data(), &completed_, sizeof(completed_));
  notice += failure.pack().substr(0, kLongestNotice - notice.size());
  notices_.reserve(static_cast<std::size_t>(transport_.size()), notice.size());
  for (int rank = 0; rank < transport_.size(); ++rank) {
    if (rank == transport_.rank()) continue;
    const auto slot = static_cast<std::size_t>(rank);
    std::memcpy(notices_.slot(slot), notice.data(), notice.size());
    try {
      notices_.message(slot) =
          transport_.send(rank, Tag::failure, notices_.memory(slot).first(notice.size()));
    } catch (const Error&) {  // that member is lost; the others are told
    }
  }
}

void Collective::check_others() {
  throw_if_failed();
  const std::optional<Arrival> arrival = transport_.probe(Tag::failure);
  if (!arrival) return;
  notices_.reserve(1, kLongestNotice);
  const std::size_t slot = 0;
  notices_.message(slot) =
      transport_.receive(arrival->from, Tag::failure, notices_.memory(slot).first(kLongestNotice));
  while (!transport_.poll(notices_.message(slot))) continue;  // it has arrived
  // The failed member has sent it to all, so it is not forwarded.
  std::uint64_t completed = 0;
  LOCKSTEP_CHECK_OP(arrival->bytes, >=, sizeof(completed));
  std::memcpy(&completed, notices_.slot(slot), sizeof(completed));
  const auto failure =
      ErrorMessage::unpack({reinterpret_cast<const char*>(notices_.slot(slot)) + sizeof(completed),
                            arrival->bytes - sizeof(completed)});
  // All that the operation needs of that member is on its way.
  if (completed_ < begun_ && begun_ <= completed) {
    if (!later_) later_ = failure;
    return;
  }
  record_failure(failure);
  throw_if_failed();
}

void Collective::complete_operation() {
  completed_ = begun_;
  if (later_) record_failure(*later_);
}

}  // namespace lockstep::inline v0::allreduce
