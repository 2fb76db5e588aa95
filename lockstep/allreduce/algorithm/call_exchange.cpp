#include "lockstep/allreduce/algorithm/call_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

// Indices of messages in MessageBuffers. The roles of the memory slots alternate.
constexpr std::size_t kSend = 0;
constexpr std::size_t kReceive = 1;

}  // namespace

CallExchange::CallExchange(Transport& transport, std::size_t value_bytes)
    : transport_(transport),
      rank_(transport.rank()),
      size_(transport.size()),
      max_bytes_(value_bytes) {
  while (core_ * 2 <= size_) core_ *= 2;
  calls_.resize(static_cast<std::size_t>(size_));
  max_bytes_ += calls_.size() * sizeof(Call);
  buffers_.reserve(2, max_bytes_);
}

void CallExchange::start(const Call& call, const std::byte* values) {
  LOCKSTEP_CHECK(stage_ == Stage::done);
  calls_[rank_] = call;
  has_values_ = values != nullptr;
  if (has_values_) {
    const std::size_t bytes = call.count * bytes_per_element(call.type);
    LOCKSTEP_CHECK_OP(bytes + calls_.size() * sizeof(Call), <=, max_bytes_);
    std::memcpy(buffers_.slot(sums_), values, bytes);
  }
  distance_ = 1;
  stage_ = Stage::to_core;
  begin_stage();
}

int CallExchange::partner() const {
  if (stage_ == Stage::exchange) return rank_ ^ distance_;
  return is_extra() ? rank_ - core_ : rank_ + core_;
}

// A rank of the core has the calls of the ranks that differ from it in lower bits, and of the extra
// ranks that sent theirs to these.
CallExchange::Ranks CallExchange::calls_of(int rank) const {
  if (stage_ == Stage::to_core) return {std::pair(rank, rank + 1), std::pair(0, 0)};
  const int width = stage_ == Stage::from_core ? core_ : distance_;
  const int first = stage_ == Stage::from_core ? 0 : rank & ~(width - 1);
  return {std::pair(first, first + width),
          std::pair(std::min(core_ + first, size_), std::min(core_ + first + width, size_))};
}

void CallExchange::begin_stage() {
  const bool has_extra = is_extra() || rank_ + core_ < size_;
  switch (stage_) {
    case Stage::to_core:
      if (is_extra()) return send();
      if (has_extra) return receive();
      return next_stage();
    case Stage::exchange:
      if (is_extra() || distance_ >= core_) return next_stage();
      receive();
      return send();
    case Stage::from_core:
      if (is_extra()) return receive();
      if (has_extra) return send();
      return next_stage();
    case Stage::done:
      return;
  }
}

// Called when the send and the receive of the stage are complete.
void CallExchange::end_stage() {
  const bool only_sent = is_extra() ? stage_ == Stage::to_core : stage_ == Stage::from_core;
  if (!only_sent) unpack_received();
  if (stage_ != Stage::exchange) return next_stage();
  distance_ *= 2;
  begin_stage();
}

void CallExchange::next_stage() {
  stage_ = static_cast<Stage>(static_cast<int>(stage_) + 1);
  begin_stage();
}

bool CallExchange::advance() {
  if (is_done()) return false;
  const bool is_received = transport_.poll(buffers_.message(kReceive), &received_bytes_);
  if (!transport_.poll(buffers_.message(kSend)) || !is_received) return false;
  end_stage();
  return true;
}

// Values first, where they are aligned; then calls.
void CallExchange::send() {
  const Call& mine = calls_[rank_];
  std::byte* const begin = buffers_.slot(sums_);
  std::byte* end = begin + (has_values_ ? mine.count * bytes_per_element(mine.type) : 0);
  for (const auto& [first, last] : calls_of(rank_)) {
    const std::size_t bytes = static_cast<std::size_t>(last - first) * sizeof(Call);
    std::memcpy(end, calls_.data() + first, bytes);
    end += bytes;
  }
  buffers_.message(kSend) = transport_.send(partner(), Tag::call, {begin, end});
}

// Accepts any length, because the partner's call may differ.
void CallExchange::receive() {
  buffers_.message(kReceive) =
      transport_.receive(partner(), Tag::call, {buffers_.slot(1 - sums_), max_bytes_});
}

void CallExchange::unpack_received() {
  const Ranks ranks = calls_of(partner());
  const std::byte* from = buffers_.slot(1 - sums_) + received_bytes_;
  for (const auto& [first, last] : ranks) from -= (last - first) * sizeof(Call);
  const auto values = from - buffers_.slot(1 - sums_);
  LOCKSTEP_CHECK_OP(values, >=, 0);
  for (const auto& [first, last] : ranks) {
    const std::size_t bytes = static_cast<std::size_t>(last - first) * sizeof(Call);
    std::memcpy(calls_.data() + first, from, bytes);
    from += bytes;
    has_values_ = has_values_ &&
                  std::all_of(calls_.begin() + first, calls_.begin() + last,
                              [this](const Call& call) { return is_same(call, calls_[rank_]); });
  }
  if (!has_values_) return;
  LOCKSTEP_CHECK_OP(static_cast<std::size_t>(values), ==,
                    calls_[rank_].count * bytes_per_element(calls_[rank_].type));
  add_received();
}

void CallExchange::add_received() {
  const Call& call = calls_[rank_];
  std::byte* const sums = buffers_.slot(sums_);
  std::byte* const received = buffers_.slot(1 - sums_);
  if (stage_ != Stage::from_core && partner() < rank_)
    return reduce_into(sums, received, call.count, call.type, call.op);
  // Into the received values, so that both partners add in the same order.
  if (stage_ != Stage::from_core) reduce_into(received, sums, call.count, call.type, call.op);
  sums_ = 1 - sums_;
}

}  // namespace lockstep::inline v0::allreduce
