// The pseudo-random order of records in an epoch, in constant memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "lockstep/data/order/batch_plan.h"

namespace lockstep::inline v0::data {

/// A pseudo-random permutation of 0 .. size-1 that depends only on (key, size). It needs constant
/// memory for any size. Any thread can compute the image of any position directly.
///
/// A Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from
/// pseudorandom functions", 1988) permutes the smallest power of two that holds all positions. An
/// image outside the range is permuted again until it is inside (cycle walking: Black and Rogaway,
/// "Ciphers with arbitrary finite domains", 2002). That takes less than two passes on average.
class Permutation {
 public:
  /// `size` >= 1.
  Permutation(std::uint64_t key, std::int64_t size);

  /// The image of `position`, 0 .. size-1.
  std::int64_t operator[](std::int64_t position) const;

 private:
  /// The smaller the halves, the less a round mixes. Below 256 positions, where rounds are cheap,
  /// all permutations must be likely.
  static constexpr int kRounds = 12;
  static constexpr int kRoundsIfSmall = 48;
  static constexpr std::int64_t kSmallSize = 256;

  std::uint64_t permute(std::uint64_t value) const;

  std::uint64_t size_;
  std::size_t rounds_;
  int low_bits_;  ///< bits in the low half; the high half has equally many or one less
  std::uint64_t low_mask_;
  std::uint64_t high_mask_;
  std::array<std::uint64_t, kRoundsIfSmall> round_keys_;
};

// The order in which an epoch visits the records.

/// Parameters of the shuffle. They depend on the data and the global batch, not on the ranks that
/// read.
struct OrderShape {
  std::int64_t records = 0;  ///< number of records in the data set
  std::int64_t slots = 1;    ///< number of virtual shards: samples per global batch
  /// Adjacent records that are read together; 1: records are shuffled individually.
  std::int64_t block = 1;
  /// Records of a shard that are shuffled together; a multiple of `block`.
  std::int64_t window = 1;
  bool operator==(const OrderShape&) const = default;
};

/// Chooses the shape for `records` records of `record_bytes` stored bytes on average (0: they are
/// in memory). Records are shuffled individually, unless blocks of 16 to 64 KiB hold several
/// records and there are so many blocks that batches are statistically indistinguishable from
/// batches of individually drawn records.
OrderShape choose_order_shape(std::int64_t records, std::int64_t record_bytes,
                              std::int64_t global_batch);

/// A pseudo-random order of all records that depends only on (seed, epoch) and the shape. It needs
/// constant memory for any number of records. Any thread can compute any position directly, so the
/// position in the data is the step number.
///
/// With small records in random order, every rank would read the whole file, page by page.
/// Therefore, if blocks hold several records, blocks of adjacent records are permuted and
/// concatenated. Each sample of a global batch owns a part of this sequence, its virtual shard,
/// whose length is the number of steps. The shard is visited window by window, in random order
/// within each window. Replicas own samples of the batch, hence shards, and read only the blocks of
/// their shards. The order is the same for any number of replicas, and no two replicas read the
/// same shard. The records of one batch come from as many shards as it has samples, so adjacent
/// records do not appear in the same batch.
class EpochOrder {
 public:
  /// The order of one epoch.
  EpochOrder(std::uint64_t seed, std::int64_t epoch, const OrderShape& shape);

  /// The record id at `position`, 0 .. records-1; position = step in the epoch * slots + sample of
  /// the batch.
  std::int64_t operator[](std::int64_t position) const;

  /// Calls `read` with ranges of record ids that are worth prefetching when `position` is reached:
  /// the blocks of the shard's next window, one by one, and in the first two windows also the block
  /// of the record itself. Does nothing if blocks have one record.
  void for_each_block_ahead(std::int64_t position, const std::function<void(Range)>& read) const;

 private:
  /// A position in the sequence of blocks, relative to its shard.
  struct ShardPosition {
    std::int64_t shard = 0;
    std::int64_t index = 0;  // within the shard
  };
  /// One window of a shard, as a range of the sequence.
  struct Window {
    Range line;
    std::uint64_t number = 0;  // number over all shards
  };

  ShardPosition shard_position(std::int64_t position) const;
  std::int64_t line_of(ShardPosition position_in_shard) const;
  Range shard_range(std::int64_t shard) const { return split(shape_.records, shape_.slots, shard); }
  /// Shards start their windows at different steps, so that not all blocks are needed at the same
  /// time.
  std::int64_t phase(std::int64_t shard) const;
  Window window_at(std::int64_t shard, std::int64_t index) const;
  std::int64_t record_at(std::int64_t line) const;
  void read_line(Range line, const std::function<void(Range)>& read) const;

  OrderShape shape_;
  std::uint64_t window_key_;
  std::int64_t rotation_ = 0;  // offset of the block boundaries, different in each epoch
  Permutation permutation_;    // permutation of the blocks
};

}  // namespace lockstep::inline v0::data
