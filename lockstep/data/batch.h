// The batches of one process, in the order of training steps.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/pixels.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/pipeline/bad_records.h"

namespace lockstep::data {

/// One replica's part of one global batch.
struct Batch {
  std::int64_t step = 0;   ///< step since the start of training (epoch * steps_per_epoch + step within the epoch)
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t first_sample = 0;         ///< position of this part's first sample in the global batch
  std::int64_t samples = 0;              ///< of this part; may be 0
  std::int64_t global_samples = 0;       ///< of the whole global batch: the batch size, or less for the ragged last one
  std::vector<std::int64_t> record_ids;  ///< [samples]
  std::vector<float> features;           ///< [samples, shape...]
  std::vector<std::uint8_t> pixels;      ///< [samples, shape...] instead of features, where the stream gives pixels
  ChannelNormalization normalization;    ///< what is still to be done to the pixels once they are features
  std::vector<std::int32_t> labels;      ///< [samples] where the data set has classes, else empty
  std::vector<float> targets;            ///< [samples, targets] where it has targets, else empty
  std::vector<std::int32_t> partner_labels;  ///< [samples] where samples are mixed in pairs, else empty
  std::vector<float> label_weights;          ///< [samples] likewise: of `labels`; the rest is that of `partner_labels`
};

/// Which part of which batches one process reads.
struct StreamOptions {
  std::uint64_t seed = 1;       ///< keys the shuffle (with the epoch) and the maps
  std::int64_t first_step = 0;  ///< resume: the first step to deliver
  std::int64_t last_step = -1;  ///< the step after the last to deliver; -1 for no end (epoch follows epoch)
  int replicas = 1;             ///< world size
  int first_replica = 0;        ///< number of this process's first replica
  int local_replicas = 1;       ///< replicas of this process
  int prefetch = 2;             ///< global batches read ahead, at most, unless Dataset::prefetch() says how many
  int threads = 1;              ///< background threads that read and map, at most: as many work as are needed
  std::int64_t prefetch_bytes = std::int64_t{1} << 30;  ///< memory of batches read ahead, which may make them fewer;
                                                        ///< one is always
  bool pixels = false;  ///< images of uint8 that no map changes come as pixels, a quarter of the bytes

  /// Where the replicas are, as the order of records wants to know it.
  ReplicaLayout layout() const { return {replicas, local_replicas}; }
};

/// Batches of one process, in step order, made by background threads ahead of their use. Destroying it stops them
/// cleanly at any moment.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// Fills `parts` (one element per local replica, memory reused from call to call) with the next step. False at the
  /// end. Blocks until the step is read. An error of a background thread is thrown at the step it belongs to, after the
  /// steps before it, whatever the number of threads; the stream is of no further use then. Called by one thread.
  virtual bool next(std::vector<Batch>& parts) = 0;
  /// The same if it need not block, else false: now nothing is ready, or all is done, or next() would throw.
  virtual bool next_if_ready(std::vector<Batch>& parts) = 0;
  /// Seconds that next() has waited since the start.
  virtual double seconds_waited() const = 0;
  /// Records that could not be read and were replaced, of those read so far; each once.
  virtual std::vector<BadRecord> bad_records() const = 0;
  /// Background threads that work now, of those that may: fewer where batches were ready long before their use, more
  /// where they were waited for. For the thread that calls next().
  virtual int workers() const = 0;
};

}  // namespace lockstep::data
