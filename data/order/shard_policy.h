// Who reads which records.
#pragma once

#include <string_view>

namespace lockstep::data {

/// The policies of tf.distribute, with their meaning there, but for the first.
enum class ShardPolicy {
  /// All replicas go through one order of all records together: each takes its part of every global batch, and reads
  /// nothing else. Whatever the number and sizes of files, each record is seen once an epoch, parts differ by at most
  /// one record, and the order does not depend on the number of replicas.
  automatic,
  /// Worker w of W takes files w, w + W, w + 2W ... and batches them alone; the epoch ends when the last worker is
  /// done. Needs at least as many files as workers.
  file,
  /// Like `automatic`, but a global batch is cut as tf.distribute does: into slices of equal size of which the last
  /// ones may be short or empty, dealt to workers in turn.
  data,
  /// Every worker goes through all records, in an order of its own: an epoch sees each record once per worker. For
  /// workers that have different data.
  off,
};

/// "auto", "file", "data", "off".
std::string_view to_string(ShardPolicy policy);
/// Throws Error (input) that lists them.
ShardPolicy parse_shard_policy(std::string_view name);

}  // namespace lockstep::data
