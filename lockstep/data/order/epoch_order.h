// A pseudo-random permutation that needs no memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "lockstep/data/order/batch_split.h"

namespace lockstep::data {

/// A pseudo-random permutation of 0 .. size-1 that depends on (key, size) alone. A few words of memory whatever the
/// size; the image of any position can be asked for at once, by any thread.
///
/// A Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988)
/// permutes the smallest power of two that holds all positions; an image outside is permuted again until it falls
/// inside (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). That takes less than two
/// passes on average.
class Permutation {
 public:
  /// `size` >= 1.
  Permutation(std::uint64_t key, std::int64_t size);

  /// The image of `position`, 0 .. size-1.
  std::int64_t operator[](std::int64_t position) const;

 private:
  /// The smaller the halves, the less a round can mix; below 256 positions, where rounds cost nothing, all permutations
  /// must be likely.
  static constexpr int kRounds = 12;
  static constexpr int kRoundsOfFew = 48;
  static constexpr std::int64_t kFew = 256;

  std::uint64_t permute(std::uint64_t value) const;

  std::uint64_t size_;
  std::size_t rounds_;
  int low_bits_;  ///< of the value; the other half has as many, or one less
  std::uint64_t low_mask_;
  std::uint64_t high_mask_;
  std::array<std::uint64_t, kRoundsOfFew> round_keys_;
};

// The order in which an epoch visits the records.

/// How the records of a data set are mixed. Depends on the data and the global batch, never on who reads them.
struct OrderShape {
  std::int64_t records = 0;  ///< in the data set
  std::int64_t slots = 1;    ///< virtual shards: samples of a global batch
  std::int64_t block = 1;    ///< neighbouring records that are read together; 1 where all records are mixed as they are
  std::int64_t window = 1;   ///< records of a shard among which the blocks' records are mixed; a multiple of `block`
  bool operator==(const OrderShape&) const = default;
};

/// The shape for `records` records of `record_bytes` stored bytes on average (0: they are in memory). Records are mixed
/// one by one unless blocks of 16 to 64 KiB hold several of them and leave so many blocks that a batch cannot be told
/// from one of records that were drawn one by one.
OrderShape choose_order_shape(std::int64_t records, std::int64_t record_bytes, std::int64_t global_batch);

/// A pseudo-random order of all records that depends on (seed, epoch) and the shape alone. A few words of memory
/// whatever the number of records; any position can be asked for at once, by any thread, so the position in the data is
/// the step number.
///
/// Small records in a random order would have every rank read all of a file, page by page. So, where blocks hold
/// several records, the blocks of neighbours are permuted and laid end to end. Of that line, each sample of a global
/// batch owns a part, its virtual shard, as long as there are steps; it goes through it window by window, in a random
/// order within each. Replicas own samples of the batch, and so shards, and read the blocks of these: whatever their
/// number, the order is the same, and nobody reads what others do. The records of one batch come from as many shards
/// as it has samples, so that neighbours do not meet in it.
class EpochOrder {
 public:
  EpochOrder(std::uint64_t seed, std::int64_t epoch, const OrderShape& shape);  ///< the order of one epoch

  /// The record id at `position`, 0 .. records-1; position = step in the epoch * slots + sample of the batch.
  std::int64_t operator[](std::int64_t position) const;

  /// Calls `read` with the records, as ranges of ids, that are worth reading ahead when `position` is reached: block by
  /// block those of the shard's next window, and in the first two windows the block of the record itself. None where
  /// blocks have one record.
  void for_each_block_ahead(std::int64_t position, const std::function<void(Range)>& read) const;

 private:
  /// A place in the line of blocks, seen from its shard.
  struct Place {
    std::int64_t shard = 0;
    std::int64_t index = 0;  // in the shard
  };
  /// One window of a shard, as a range of the line.
  struct Window {
    Range line;
    std::uint64_t number = 0;  // over all shards
  };

  Place place_of(std::int64_t position) const;
  std::int64_t line_of(Place place) const;
  Range shard_range(std::int64_t shard) const { return split(shape_.records, shape_.slots, shard); }
  /// Shards begin their windows at different steps, so that not all blocks are needed at once.
  std::int64_t phase(std::int64_t shard) const;
  Window window_at(std::int64_t shard, std::int64_t index) const;
  std::int64_t record_at(std::int64_t line) const;
  void read_line(Range line, const std::function<void(Range)>& read) const;

  OrderShape shape_;
  std::uint64_t window_key_;
  std::int64_t rotation_ = 0;  // where blocks are cut, another place in each epoch
  Permutation permutation_;    // of blocks
};

}  // namespace lockstep::data
