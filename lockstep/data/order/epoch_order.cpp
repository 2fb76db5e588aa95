#include "lockstep/data/order/epoch_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::data {
namespace {

/// A bijection of 64-bit words in which every input bit affects every output bit: two rounds of
/// multiply and fold.
std::uint64_t mix(std::uint64_t word) {
  word = (word ^ (word >> 32)) * 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 29)) * 0xd6e8feb86659fd93u;
  return word ^ (word >> 32);
}

}  // namespace

Permutation::Permutation(std::uint64_t key, std::int64_t size)
    : size_(static_cast<std::uint64_t>(size)),
      rounds_(size < kSmallSize ? kRoundsIfSmall : kRounds) {
  LOCKSTEP_CHECK_OP(size, >=, 1);
  const int bits = static_cast<int>(std::bit_width(size_ - 1));
  low_bits_ = (bits + 1) / 2;
  low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
  high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
  const Philox generator(key);
  for (std::size_t round = 0; round < rounds_; round += 2) {
    const auto words = generator.block(size_, round);
    round_keys_[round] = (std::uint64_t{words[0]} << 32) | words[1];
    round_keys_[round + 1] = (std::uint64_t{words[2]} << 32) | words[3];
  }
}

std::uint64_t Permutation::permute(std::uint64_t value) const {
  std::uint64_t low = value & low_mask_;
  std::uint64_t high = value >> low_bits_;
  for (std::size_t round = 0; round < rounds_; round += 2) {
    high ^= mix(low ^ round_keys_[round]) & high_mask_;
    low ^= mix(high ^ round_keys_[round + 1]) & low_mask_;
  }
  return (high << low_bits_) | low;
}

std::int64_t Permutation::operator[](std::int64_t position) const {
  auto value = static_cast<std::uint64_t>(position);
  LOCKSTEP_CHECK_OP(value, <, size_);
  do value = permute(value);
  while (value >= size_);
  return static_cast<std::int64_t>(value);
}

namespace {

/// A disk reads this much in about the time of a seek, and one more page at either end is
/// negligible.
constexpr std::int64_t kBlockBytes = 64 << 10;
/// For smaller blocks, the pages at their ends are too large a fraction.
constexpr std::int64_t kLeastBlockBytes = 16 << 10;
/// The minimum number of blocks per sample of a batch. Drawing blocks instead of records narrows
/// the variation of a batch's contents by one part in this number.
constexpr std::int64_t kBlocksPerSample = 256;
/// The total size of the windows of all shards: page cache shared by the ranks of a job.
constexpr std::int64_t kWindowBytes = 1 << 30;
/// The minimum number of blocks in a window.
constexpr std::int64_t kWindowBlocks = 16;

std::int64_t blocks_of(const OrderShape& shape) {
  return std::max<std::int64_t>(1, shape.records / shape.block);
}

std::uint64_t key_of(std::uint64_t seed, std::int64_t epoch, const char* purpose) {
  return random_key(seed, purpose, static_cast<std::uint64_t>(epoch));
}

}  // namespace

OrderShape choose_order_shape(std::int64_t records, std::int64_t record_bytes,
                              std::int64_t global_batch) {
  OrderShape shape{.records = records, .slots = global_batch};
  if (record_bytes == 0) return shape;
  const std::int64_t block =
      std::min(kBlockBytes / record_bytes, records / kBlocksPerSample / global_batch);
  if (block < 2 || block * record_bytes < kLeastBlockBytes) return shape;
  shape.block = block;
  shape.window =
      block * std::max(kWindowBlocks, kWindowBytes / (global_batch * block * record_bytes));
  return shape;
}

EpochOrder::EpochOrder(std::uint64_t seed, std::int64_t epoch, const OrderShape& shape)
    : shape_(shape),
      window_key_(key_of(seed, epoch, "epoch windows")),
      permutation_(key_of(seed, epoch, "epoch order"), blocks_of(shape)) {
  LOCKSTEP_CHECK_OP(shape.slots, >=, 1);
  LOCKSTEP_CHECK_OP(shape.block, >=, 1);
  if (shape.block == 1) return;
  LOCKSTEP_CHECK_OP(shape.window % shape.block, ==, 0);
  const auto words = Philox(key_of(seed, epoch, "epoch rotation")).block(0, 0);
  const std::uint64_t word = (std::uint64_t{words[0]} << 32) | words[1];
  rotation_ = static_cast<std::int64_t>(word % static_cast<std::uint64_t>(shape.records));
}

std::int64_t EpochOrder::operator[](std::int64_t position) const {
  LOCKSTEP_CHECK(position >= 0 && position < shape_.records);
  return shape_.block == 1 ? permutation_[position] : record_at(line_of(shard_position(position)));
}

std::int64_t EpochOrder::line_of(ShardPosition position_in_shard) const {
  const Window window = window_at(position_in_shard.shard, position_in_shard.index);
  const Permutation mixed(random_key(window_key_, "window", window.number), window.line.size());
  return window.line.begin + mixed[shard_range(position_in_shard.shard).begin +
                                   position_in_shard.index - window.line.begin];
}

/// All shards have a sample in each step except the last, in which only the longer ones have one.
EpochOrder::ShardPosition EpochOrder::shard_position(std::int64_t position) const {
  const std::int64_t index = position / shape_.slots;
  const std::int64_t sample = position % shape_.slots;
  const std::int64_t longer = shape_.records % shape_.slots;
  if (index < shape_.records / shape_.slots) return {sample, index};
  // The shards that split() makes longer are those in which (shard + 1) * longer / slots reaches
  // the next integer.
  return {((sample + 1) * shape_.slots + longer - 1) / longer - 1, index};
}

std::int64_t EpochOrder::phase(std::int64_t shard) const {
  return split(shape_.window, shape_.slots, shard).begin;
}

EpochOrder::Window EpochOrder::window_at(std::int64_t shard, std::int64_t index) const {
  const Range range = shard_range(shard);
  const std::int64_t number = (index + phase(shard)) / shape_.window;
  const std::int64_t begin = number * shape_.window - phase(shard);
  const std::int64_t windows =
      2 + shape_.records / shape_.slots / shape_.window;  // per shard, at most
  return {{range.begin + std::max<std::int64_t>(0, begin),
           std::min(range.begin + begin + shape_.window, range.end)},
          static_cast<std::uint64_t>(shard * windows + number)};
}

/// Block boundaries start at an offset that changes with the epoch. The remainder after the last
/// whole block stays at the end of the sequence.
std::int64_t EpochOrder::record_at(std::int64_t line) const {
  const std::int64_t block = line / shape_.block;
  const bool is_whole = (block + 1) * shape_.block <= shape_.records;
  const std::int64_t turned =
      (is_whole ? permutation_[block] * shape_.block + line % shape_.block : line) + rotation_;
  return turned < shape_.records ? turned : turned - shape_.records;
}

void EpochOrder::for_each_block_ahead(std::int64_t position,
                                      const std::function<void(Range)>& read) const {
  if (shape_.block == 1) return;
  const ShardPosition position_in_shard = shard_position(position);
  const Range shard = shard_range(position_in_shard.shard);
  if (position_in_shard.index + phase(position_in_shard.shard) <
      2 * shape_.window) {  // no earlier window has announced all of these
    const std::int64_t line = line_of(position_in_shard);
    const std::int64_t begin = std::max(shard.begin, line / shape_.block * shape_.block);
    read_line({begin, std::min(shard.end, line / shape_.block * shape_.block + shape_.block)},
              read);
  }
  const std::int64_t ahead = position_in_shard.index + shape_.window;
  if ((ahead + phase(position_in_shard.shard)) % shape_.block == 0 && ahead < shard.size())
    read_line({shard.begin + ahead, std::min(shard.begin + ahead + shape_.block, shard.end)}, read);
}

/// Splits a range of the sequence at block boundaries, and where the ids wrap around.
void EpochOrder::read_line(Range line, const std::function<void(Range)>& read) const {
  while (line.begin < line.end) {
    const std::int64_t end = std::min(line.end, (line.begin / shape_.block + 1) * shape_.block);
    const std::int64_t first = record_at(line.begin);
    const std::int64_t count = std::min(end - line.begin, shape_.records - first);
    read({first, first + count});
    line.begin += count;
  }
}

}  // namespace lockstep::inline v0::data
