// Assembles the parts of global batches that one process needs, without unreadable records.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/pipeline/sharding.h"

namespace lockstep::data {

/// Collects unreadable records; each counts once, however often it is encountered. Thread-safe.
class BadRecords {
 public:
  /// `limit` is the maximum number of bad records; nullopt: none is allowed.
  explicit BadRecords(std::optional<std::int64_t> limit) : limit_(limit) {}

  /// Rethrows `error` if no bad records are allowed; throws Error (data) if this one exceeds the
  /// limit.
  void note(std::int64_t record_id, const Error& error);
  /// Sorted by id.
  std::vector<BadRecord> list() const;

 private:
  std::optional<std::int64_t> limit_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::string> problems_;
};

/// Stateless except for the list of bad records, so any thread can make any piece of any step.
/// Reads only the records of this process's replicas.
class BatchReader {
 public:
  BatchReader(Pipeline pipeline, const StreamOptions& options);

  /// Sizes and numbers `parts` for `step`, one part per local replica. Allocates only if the memory
  /// of an earlier step is too small.
  void lay_out(std::int64_t step, std::vector<Batch>& parts) const;

  /// Whether parts that are filled must be padded by Batch::pad().
  bool needs_padding() const { return needs_padding_; }

  /// Bytes of all parts of a step, without ragged tensors and strings.
  std::int64_t step_bytes() const;

  /// Number of samples of this process in the step for which `parts` are laid out.
  static std::int64_t local_samples(const std::vector<Batch>& parts);

  /// Reads and maps the samples [piece.begin, piece.end) of this process, counted through the parts
  /// of its replicas. Returns early if a stop is requested.
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
  bool needs_padding_;
  std::unique_ptr<BadRecords> bad_records_;
};

}  // namespace lockstep::data
