// Assembles the parts of global batches that one process needs, without unreadable records.
#pragma once

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/pipeline/sharding.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/sample.h"

namespace lockstep::inline v0::data {

/// The problem of each unreadable record, by its id.
using BadRecordProblems = std::map<std::int64_t, std::string>;

/// Stateless, so any thread can make any piece of any step. Reads only the records of this
/// process's replicas.
class BatchReader {
 public:
  BatchReader(Pipeline pipeline, const StreamOptions& options);

  /// Sizes and numbers `parts` for `step`, one part per local replica. Allocates only if the memory
  /// of an earlier step is too small.
  void resize_parts(std::int64_t step, std::vector<Batch>& parts) const;

  /// Whether parts that are filled must be padded by Batch::pad().
  bool needs_padding() const { return needs_padding_; }

  /// Bytes of all parts of a step, without ragged tensors and strings.
  std::int64_t step_bytes() const;

  /// Number of samples of this process in the step for which `parts` are sized.
  static std::int64_t local_samples(const std::vector<Batch>& parts);

  /// Reads and maps the samples [piece.begin, piece.end) of this process, counted through the parts
  /// of its replicas. Returns early if a stop is requested. Adds the bad records that it replaced
  /// to `bad`; throws Error (data) if none is allowed, or `bad` exceeds the limit.
  void fill(Range piece, std::vector<Batch>& parts, BadRecordProblems& bad,
            const std::stop_token& stop) const;

  /// Throws Error (data) if `bad` has more records than may be skipped.
  void check(const BadRecordProblems& bad) const;

 private:
  void fill_part(int replica, Range samples, Batch& part, BadRecordProblems& bad,
                 const std::stop_token& stop) const;
  std::int64_t read(SampleReader& reader, SampleKey key, Sample& sample,
                    BadRecordProblems& bad) const;

  Pipeline pipeline_;
  StreamOptions options_;
  Sharding sharding_;
  std::int64_t steps_per_epoch_;
  bool delivers_pixels_;
  bool needs_padding_;
};

}  // namespace lockstep::inline v0::data
