// Assembles the parts of global batches that one process needs.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/data/order/batch_split.h"
#include "lockstep/data/pipeline/bad_records.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/pipeline/sample_reader.h"
#include "lockstep/data/pipeline/sharding.h"

namespace lockstep::data {

/// Stateless except for the list of bad records, so any thread can make any piece of any step. Reads only the records
/// of this process's replicas.
class BatchReader {
 public:
  BatchReader(Pipeline pipeline, const StreamOptions& options);

  /// Sizes and numbers `parts` for `step`, one part per local replica. Allocates only if the memory of an earlier step
  /// is too small.
  void lay_out(std::int64_t step, std::vector<Batch>& parts) const;

  /// Bytes of all parts of a step.
  std::int64_t step_bytes() const;

  /// Number of samples of this process in the step for which `parts` are laid out.
  static std::int64_t local_samples(const std::vector<Batch>& parts);

  /// Reads and maps the samples [piece.begin, piece.end) of this process, counted through the parts of its replicas.
  /// Returns early if a stop is requested.
  void fill(Range piece, std::vector<Batch>& parts, const std::stop_token& stop) const;

  /// The bad records encountered so far.
  std::vector<BadRecord> bad_records() const { return bad_records_->list(); }

 private:
  void fill_part(int replica, Range samples, Batch& part, const std::stop_token& stop) const;
  std::int64_t read(SampleReader& reader, SampleKey key, Sample& sample) const;

  Pipeline pipeline_;
  StreamOptions options_;
  Sharding sharding_;
  std::int64_t steps_per_epoch_;
  bool gives_pixels_;
  std::unique_ptr<BadRecords> bad_records_;
};

}  // namespace lockstep::data
