// The batches of one process, in the order of training steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/element_type.h"
#include "lockstep/base/pixels.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/sample/sample_spec.h"

namespace lockstep::inline v0::data {

/// One tensor of the samples of a batch.
struct TensorArray {
  std::string name;                         ///< as in the spec
  ElementType type = ElementType::float32;  ///< uint8 for images that are pixels
  std::size_t elements = 0;                 ///< per sample; if ragged, of the longest
  std::vector<std::byte> bytes = {};        ///< [samples, shape...]
  std::vector<std::string> strings = {};    ///< [samples, shape...] of ElementType::bytes
  /// [samples]: first extents, if ragged. Each sample is padded to the longest of this part of the
  /// global batch with zeros, empty strings, or kMasked in a target of class numbers.
  std::vector<std::int32_t> lengths = {};
  std::size_t unit = 0;              ///< if ragged: elements per step of the first extent
  bool pads_masked = false;          ///< if ragged: the padding is kMasked, not zeros
  std::vector<RaggedRow> rows = {};  ///< [samples], if ragged: what pad() copies

  /// The elements of all samples; std::string for ElementType::bytes. Throws Error (input) for
  /// another type than that of the tensor.
  template <typename T>
  std::span<T> as() {
    return all().as<T>();
  }
  /// Read-only access to the elements.
  template <typename T>
  std::span<const T> as() const {
    return const_cast<TensorArray*>(this)->all().as<T>();
  }
  bool operator==(const TensorArray&) const = default;

 private:
  TensorView all() {
    const std::size_t size = element_bytes(type);
    if (size == 0)
      return {name, type, reinterpret_cast<std::byte*>(strings.data()), strings.size()};
    return {name, type, bytes.data(), bytes.size() / size};
  }
};

/// One replica's part of a global batch.
struct Batch {
  Batch() = default;
  /// Memory of `count` samples; see resize().
  explicit Batch(const SampleSpec& spec, std::int64_t count = 1, bool pixels = false) {
    resize(spec, count, pixels);
  }

  /// Step since the start of training (epoch * steps_per_epoch + step within the epoch).
  std::int64_t step = 0;
  std::int64_t epoch = 0;         ///< counted from 0
  std::int64_t first_sample = 0;  ///< index of this part's first sample in the global batch
  std::int64_t samples = 0;       ///< samples in this part; may be 0
  /// Samples in the global batch: the batch size, or fewer in the last batch of an epoch.
  std::int64_t global_samples = 0;
  /// Number of micro-batches by which the samples of this part are ordered (MicroBatchOrder). 1: in
  /// the order of the global batch.
  std::int64_t micro_batches = 1;
  std::vector<std::int64_t> record_ids;  ///< [samples]; see StreamOptions::marks_bad
  std::vector<TensorArray> inputs;       ///< one array per input of the data set
  std::vector<TensorArray> targets;      ///< one array per target of the data set
  std::vector<float> weights;            ///< [samples] if the data set has weights
  /// Applied to the pixels when they are converted to features.
  ChannelNormalization normalization;
  std::vector<std::int32_t> partner_labels;  ///< [samples] with mixup, otherwise empty
  /// [samples] with mixup: weight of labels(); the remainder is the weight of `partner_labels`
  std::vector<float> label_weights;

  /// Sizes the arrays for `count` samples; the first input as uint8 if `pixels`. Allocates only if
  /// they have less memory.
  void resize(const SampleSpec& spec, std::int64_t count, bool pixels = false);
  /// Views of sample `index`, valid until the next resize().
  Sample sample(std::size_t index = 0);
  /// Moves the views of a sample() to sample `index`.
  void move_to(std::size_t index, Sample& sample);
  /// Removes the samples of unreadable records, which StreamOptions::marks_bad marks. Returns the
  /// ids of these records.
  std::vector<std::int64_t> remove_bad();
  /// Fills the arrays of ragged tensors when all samples are written. A BatchStream has done so.
  /// Throws Error (data) for an array of more than 4 GiB.
  void pad();

  /// The array called `name`. Throws Error (input) that lists the names if there is none.
  const TensorArray& input(std::string_view name) const;
  const TensorArray& target(std::string_view name) const;  ///< the target called `name`

  /// The first input, [samples, shape...]; empty if it is not float32.
  std::span<const float> features() const { return first_of<float>(inputs); }
  std::span<float> features() { return first_of<float>(inputs); }  ///< writable
  /// The first input if it is uint8; features() is then empty.
  std::span<const std::uint8_t> pixels() const { return first_of<std::uint8_t>(inputs); }
  std::span<std::uint8_t> pixels() { return first_of<std::uint8_t>(inputs); }  ///< writable
  /// The class numbers in the first target; empty if it has none.
  std::span<const std::int32_t> labels() const { return first_of<std::int32_t>(targets); }
  std::span<std::int32_t> labels() { return first_of<std::int32_t>(targets); }  ///< writable
  /// The first target, [samples, shape...]; empty if it is not float32.
  std::span<const float> values() const { return first_of<float>(targets); }
  std::span<float> values() { return first_of<float>(targets); }  ///< writable

 private:
  template <typename T, typename Arrays>
  static auto first_of(Arrays& arrays) -> decltype(arrays.front().template as<T>()) {
    if (arrays.empty() || arrays.front().type != element_type_of<T>()) return {};
    return arrays.front().template as<T>();
  }
};

/// Selects the steps and the parts of batches that one process reads.
struct StreamOptions {
  std::uint64_t seed = 1;       ///< seeds the shuffle (with the epoch) and the maps
  std::int64_t first_step = 0;  ///< the first step to deliver, for resuming
  /// One past the last step to deliver; -1: unlimited (epoch after epoch).
  std::int64_t last_step = -1;
  int replicas = 1;        ///< world size
  int first_replica = 0;   ///< index of this process's first replica
  int local_replicas = 1;  ///< number of replicas in this process
  /// Maximum number of prefetched global batches, unless set by Dataset::prefetch().
  int prefetch = 2;
  /// Maximum number of background threads that read and map; fewer run if fewer are needed.
  int threads = 1;
  /// Memory limit of prefetched batches; at least one is kept.
  std::int64_t prefetch_bytes = std::int64_t{1} << 30;
  /// Deliver uint8 images that no map changes as pixels, a quarter of the bytes.
  bool pixels = false;
  /// Mark the unreadable records that Dataset::skip_bad_records() tolerates instead of replacing
  /// them: the sample has the record id -1 - id and undefined values (Batch::remove_bad).
  bool marks_bad = false;
  /// An Error about a record that cannot be read names the option that tolerates such records.
  bool names_remedy = false;
  /// Number of micro-batches that order the samples of each part (Batch::micro_batches), at most
  /// the samples of the global batch. The micro-batches are the same for any number of replicas.
  int micro_batches = 1;

  /// The distribution of replicas over ranks.
  ReplicaLayout layout() const { return {replicas, local_replicas}; }
};

/// The batches of one process, in step order, prepared ahead of use by background threads. The
/// destructor stops the threads at any time.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// Fills `parts` (one element per local replica, memory is reused between calls) with the next
  /// step. Returns false at the end. Blocks until the step is read. An error in a background thread
  /// is thrown at the step where it occurred, after the preceding steps, for any number of threads;
  /// the stream cannot be used afterwards. Call it from one thread only.
  virtual bool next(std::vector<Batch>& parts) = 0;
  /// The non-blocking form: false if no step is ready, at the end, or if next() would throw.
  virtual bool next_if_ready(std::vector<Batch>& parts) = 0;
  /// Total time in seconds that next() has waited.
  virtual double seconds_waited() const = 0;
  /// Unreadable records that were replaced so far, each listed once.
  virtual std::vector<BadRecord> bad_records() const = 0;
  /// Number of active background threads. It decreases while batches are ready long before use, and
  /// increases while the caller waits for them. Call it from the thread that calls next().
  virtual int workers() const = 0;
  /// Total processor time of the background threads in seconds, without unfinished work.
  virtual double processor_seconds() const = 0;
};

}  // namespace lockstep::inline v0::data
