// Makes the parts of global batches that one process needs.
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

/// Stateless beyond its description and the bad records it has met, so any thread may make any piece of any step. Reads
/// the records of this process's replicas and no others.
class BatchReader {
 public:
  BatchReader(Pipeline pipeline, const StreamOptions& options);

  /// Gives `parts` the sizes and numbers of `step`: one part per local replica. Allocates only where the memory of an
  /// earlier step is too small.
  void lay_out(std::int64_t step, std::vector<Batch>& parts) const;

  /// Bytes of a whole step's parts.
  std::int64_t step_bytes() const;

  /// Samples of this process in the step that `parts` are laid out for.
  static std::int64_t local_samples(const std::vector<Batch>& parts);

  /// Reads and maps samples [piece.begin, piece.end) of this process's; the parts of its replicas are counted through.
  /// Returns early when a stop is asked for.
  void fill(Range piece, std::vector<Batch>& parts, const std::stop_token& stop) const;

  /// That were met so far.
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
