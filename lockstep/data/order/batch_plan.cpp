#include "lockstep/data/order/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {
std::string_view to_string(ShardPolicy policy) { return kNamesOf<ShardPolicy>.name(policy); }

BatchPlan::BatchPlan(ShardPolicy policy, std::vector<std::int64_t> worker_records,
                     std::int64_t global_batch, ReplicaLayout layout)
    : policy_(policy),
      worker_records_(std::move(worker_records)),
      global_batch_(global_batch),
      layout_(layout) {
  LOCKSTEP_CHECK_OP(global_batch, >=, 1);
  if (policy != ShardPolicy::automatic && layout.replicas % layout.per_worker != 0)
    throw Error(ErrorCategory::input, fmt::format("shard-policy {}", to_string(policy)),
                "expected the same number of replicas on every rank",
                fmt::format("{} replicas cannot be divided into ranks of {}", layout.replicas,
                            layout.per_worker));
  if (!has_own_sequences()) {
    LOCKSTEP_CHECK_OP(worker_records_.size(), ==, 1U);
    steps_ = worker_records_[0] == 0 ? 0 : 1 + (worker_records_[0] - 1) / global_batch;
    return;
  }
  LOCKSTEP_CHECK_OP(worker_records_.size(), ==, static_cast<std::size_t>(layout.workers()));
  for (int worker = 0; worker < layout.workers(); ++worker)
    steps_ = std::max(steps_, steps_of_worker(worker));
}

BatchShare BatchPlan::share(std::int64_t step, int replica) const {
  if (!has_own_sequences()) return shared_share(step, replica);
  BatchShare share;
  for (int each = 0; each < layout_.replicas; ++each) {
    const Range range = worker_range(step, each);
    if (each < replica) share.first_sample += range.size();
    if (each == replica) share.positions = range;
    share.global_samples += range.size();
  }
  return share;
}

std::int64_t BatchPlan::records_of_worker(int worker) const {
  if (has_own_sequences()) return worker_records_[worker];
  std::int64_t records = 0;
  for (int local = 0; local < layout_.per_worker; ++local)
    records += records_of_replica(worker * layout_.per_worker + local);
  return records;
}

std::int64_t BatchPlan::records_of_replica(int replica) const {
  if (steps_ == 0) return 0;
  const std::int64_t whole = steps_ - 1;
  const std::int64_t replicas = layout_.replicas;
  const std::int64_t last = share(whole, replica).positions.size();
  if (policy_ == ShardPolicy::data)
    return last + (whole > 0 ? whole * share(0, replica).positions.size() : 0);
  // The sizes from split_in_turn(), computed incrementally.
  const std::int64_t remainder = global_batch_ % replicas;
  return last + whole * (global_batch_ / replicas) + (replica + whole) * remainder / replicas -
         replica * remainder / replicas;
}

BatchShare BatchPlan::shared_share(std::int64_t step, int replica) const {
  const std::int64_t begin = step * global_batch_;
  const std::int64_t samples = std::min(global_batch_, worker_records_[0] - begin);
  Range range = balanced_range(step, samples, replica);
  if (policy_ == ShardPolicy::data) {
    const std::int64_t slice = (samples + layout_.replicas - 1) / layout_.replicas;
    const int number =
        replica / layout_.per_worker + replica % layout_.per_worker * layout_.workers();
    range = {std::min(number * slice, samples), std::min((number + 1) * slice, samples)};
  }
  return {{begin + range.begin, begin + range.end}, range.begin, samples};
}

/// Over an epoch, the samples of replicas differ by at most one: the last step, which may be short,
/// starts with the replicas that have one sample less.
Range BatchPlan::balanced_range(std::int64_t step, std::int64_t samples, int replica) const {
  const std::int64_t replicas = layout_.replicas;
  if (samples == global_batch_) return split_in_turn(samples, replicas, replica, step);
  const std::int64_t remainder = global_batch_ % replicas;
  const auto had_one_more = [&](std::int64_t r) {
    return (r + step) * remainder / replicas - r * remainder / replicas >
           step * remainder / replicas;
  };
  std::int64_t with_less = 0;
  for (std::int64_t r = 0; r < replicas; ++r) with_less += !had_one_more(r);
  // The larger parts go to replicas with fewer samples, distributed evenly, and the remaining ones
  // to the others.
  const std::int64_t larger = samples % replicas;
  const std::int64_t for_less = std::min(larger, with_less);
  Range range;
  std::int64_t less_before = 0;
  for (std::int64_t r = 0; r <= replica; ++r) {
    const bool more = had_one_more(r);
    const std::int64_t index = more ? r - less_before : less_before;
    const std::int64_t extra = more ? split(larger - for_less, replicas - with_less, index).size()
                                    : split(for_less, with_less, index).size();
    less_before += !more;
    range = {range.end, range.end + samples / replicas + extra};
  }
  return range;
}

/// The position in a worker's sequence after a number of batches of its replicas. tf.distribute
/// divides a global batch of G among N replicas as G mod N batches of G/N + 1, then batches of G/N.
/// Each worker goes through this cycle, starting at the position of its first replica.
std::int64_t BatchPlan::worker_position(int worker, std::int64_t pulls) const {
  const std::int64_t replicas = layout_.replicas;
  const std::int64_t larger = global_batch_ % replicas;
  const auto before = [&](std::int64_t pull) {
    return pull / replicas * global_batch_ + pull % replicas * (global_batch_ / replicas) +
           std::min(pull % replicas, larger);
  };
  const std::int64_t first = std::int64_t{worker} * layout_.per_worker;
  return before(first + pulls) - before(first);
}

Range BatchPlan::worker_range(std::int64_t step, int replica) const {
  const int worker = replica / layout_.per_worker;
  const std::int64_t records = worker_records_[worker];
  const std::int64_t pull = step * layout_.per_worker + replica % layout_.per_worker;
  return {std::min(worker_position(worker, pull), records),
          std::min(worker_position(worker, pull + 1), records)};
}

std::int64_t BatchPlan::steps_of_worker(int worker) const {
  const std::int64_t records = worker_records_[worker];
  // A whole cycle of the worker is one global batch of records and `replicas` batches of its
  // replicas.
  std::int64_t low = 0;
  std::int64_t high = (records / global_batch_ + 1) * layout_.replicas;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (worker_position(worker, middle * layout_.per_worker) >= records)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

Range split(std::int64_t total, std::int64_t parts, std::int64_t part) {
  LOCKSTEP_CHECK_OP(total, >=, 0);
  LOCKSTEP_CHECK_OP(parts, >=, 1);
  LOCKSTEP_CHECK_OP(part, >=, 0);
  LOCKSTEP_CHECK_OP(part, <, parts);
  // part * total / parts without overflow: with total = q*parts + r, it is part*q + part*r/parts,
  // where r < parts.
  const std::int64_t quotient = total / parts;
  const std::int64_t remainder = total % parts;
  const auto begin_of = [&](std::int64_t p) { return p * quotient + p * remainder / parts; };
  return {begin_of(part), begin_of(part + 1)};
}

Range MicroBatchOrder::range(std::int64_t number) const {
  LOCKSTEP_CHECK(number >= 0 && number < count_);
  // Samples of the global batch before `sample` in the micro-batches before `end`.
  const auto before = [&](std::int64_t sample, std::int64_t end) {
    return sample / count_ * end + std::min(sample % count_, end);
  };
  const auto position = [&](std::int64_t end) {
    return before(samples_.end, end) - before(samples_.begin, end);
  };
  return {position(number), position(number + 1)};
}

// Part p has one more if (p + turn) * remainder / parts passes an integer. Summed over turns, these
// are the integers between two numbers at a distance of turns * remainder / parts, for every part.
Range split_in_turn(std::int64_t total, std::int64_t parts, std::int64_t part, std::int64_t turn) {
  LOCKSTEP_CHECK(part >= 0 && part < parts && turn >= 0);
  const std::int64_t quotient = total / parts;
  const std::int64_t remainder = total % parts;
  turn %= parts;
  const auto begin_of = [&](std::int64_t p) {
    return p * quotient + (p + turn) * remainder / parts - turn * remainder / parts;
  };
  return {begin_of(part), begin_of(part + 1)};
}

}  // namespace lockstep::inline v0::data
