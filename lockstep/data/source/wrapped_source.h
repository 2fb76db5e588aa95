// Sources made of other sources: the record operations of a data set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/order/interleave_order.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"

namespace lockstep::inline v0::data {

// Sources that reorder or select the records of one source.

/// Base class: the facts of another source, which the operation changes.
class WrappedSource : public RecordSource {
 protected:
  explicit WrappedSource(std::shared_ptr<const RecordSource> source)
      : RecordSource(source->info()), source_(std::move(source)) {}
  /// Adds the operation to the descriptions: ", the first 100 records".
  void describe(const std::string& operation) {
    info_.description += operation;
    info_.preparation += operation;
  }

  const RecordSource& source() const { return *source_; }

 private:
  std::shared_ptr<const RecordSource> source_;
};

/// Applies the operations before a record operation: recipe, maps and normalization. Their random
/// choices depend on the pass (Sample) and on the record id in this source, not on later
/// operations.
class PreparedSource final : public WrappedSource {
 public:
  /// The pipeline's order and batches are ignored.
  explicit PreparedSource(Pipeline pipeline);

  void read(std::int64_t record_id, Sample& sample) const override;
  void will_need(Range record_ids) const override { source().will_need(record_ids); }
  void prefetch(std::int64_t record_id) const override { source().prefetch(record_id); }

 private:
  Pipeline pipeline_;
};

class RangeSource final : public WrappedSource {
 public:
  /// Records [records.begin, records.end) of `source`; the range must be valid.
  RangeSource(std::shared_ptr<const RecordSource> source, Range records, std::string_view word);

  void read(std::int64_t record_id, Sample& sample) const override {
    source().read(records_.begin + record_id, sample);
  }
  void prefetch(std::int64_t record_id) const override {
    source().prefetch(records_.begin + record_id);
  }

 private:
  Range records_;
};

/// All records of another source, several times. Each repetition is a separate epoch for the
/// operations before it: epoch e of this source consists of epochs e * times to e * times + times -
/// 1 of those maps and recipes, so their random choices differ.
class RepeatedSource final : public WrappedSource {
 public:
  /// Throws Error (input) for less than one repetition, or for more than 2^63 - 1 records.
  RepeatedSource(std::shared_ptr<const RecordSource> source, std::int64_t times);

  void read(std::int64_t record_id, Sample& sample) const override;
  void prefetch(std::int64_t record_id) const override {
    source().prefetch(record_id % source().size());
  }

 private:
  std::int64_t times_;
};

class FilteredSource final : public WrappedSource {
 public:
  /// The records of another source for which a predicate returns true. Reads every record once,
  /// with `threads` threads, as in epoch 0 of seed 0, and stores the ids of the selected records: 4
  /// bytes each, 8 if `source` has 2^32 records or more. Throws the first error in record order.
  FilteredSource(std::shared_ptr<const RecordSource> source, const SamplePredicate& keep,
                 int threads);

  void read(std::int64_t record_id, Sample& sample) const override;
  void prefetch(std::int64_t record_id) const override { source().prefetch(id_of(record_id)); }

 private:
  std::int64_t id_of(std::int64_t record_id) const;  // in the other source

  std::variant<std::vector<std::uint32_t>, std::vector<std::int64_t>> ids_;
};

/// The records of another source, with other numbers of the same classes.
class RenumberedSource final : public WrappedSource {
 public:
  /// Class i is called `names[i]`; `source` may lack some of these classes. Throws Error (data) for
  /// a class of `source` that `names` does not contain, and if the classes of `source` have no
  /// names.
  RenumberedSource(std::shared_ptr<const RecordSource> source, std::vector<std::string> names);

  void read(std::int64_t record_id, Sample& sample) const override {
    source().read(record_id, sample);
    for (std::int32_t& label : sample.targets.front().as<std::int32_t>())
      if (label != kMasked) label = number_of(label, record_id);
  }
  void will_need(Range record_ids) const override { source().will_need(record_ids); }
  void prefetch(std::int64_t record_id) const override { source().prefetch(record_id); }

 private:
  // Throws Error (data) for a label, such as one of a user's map, that is not a class of the
  // source.
  std::int32_t number_of(std::int32_t label, std::int64_t record_id) const;

  std::vector<std::int32_t> numbers_;  // by class number of the source
};

/// The records of another source, with one length of a ragged tensor: longer samples are cut,
/// shorter ones end in zeros, empty strings, or kMasked in a target of class numbers.
class PaddedSource final : public WrappedSource {
 public:
  /// `length` is the first extent of the input or target `name`. Throws Error (input) unless that
  /// is a ragged tensor, and the shape is valid.
  PaddedSource(std::shared_ptr<const RecordSource> source, std::string_view name,
               std::int64_t length);

  void read(std::int64_t record_id, Sample& sample) const override;
  void will_need(Range record_ids) const override { source().will_need(record_ids); }
  void prefetch(std::int64_t record_id) const override { source().prefetch(record_id); }

 private:
  TensorView& padded(Sample& sample) const {
    return is_target_ ? sample.targets[index_] : sample.inputs[index_];
  }

  bool is_target_ = false;
  std::size_t index_ = 0;
  std::size_t unit_ = 0;  // elements per step of the first extent
  bool pads_masked_ = false;
};

/// The records of another source with one target: the first input. Those of an autoencoder.
class AutoencodedSource final : public WrappedSource {
 public:
  /// Throws Error (input) unless the first input is float32 and has a fixed size.
  explicit AutoencodedSource(std::shared_ptr<const RecordSource> source);

  void read(std::int64_t record_id, Sample& sample) const override;
  void will_need(Range record_ids) const override { source().will_need(record_ids); }
  void prefetch(std::int64_t record_id) const override { source().prefetch(record_id); }
};

/// Base class. If the images of the sources have different normalizations, or some records are not
/// images, all records are delivered as features.
class JoinedSource : public RecordSource {
 protected:
  /// `word` names the operation in errors ("interleave") and `how` in descriptions ("one after the
  /// other"). Throws Error (input) that describes the difference if the specs of the samples, the
  /// names of classes, features or targets differ.
  JoinedSource(std::vector<std::shared_ptr<const RecordSource>> inputs, std::string_view word,
               std::string_view how);

  std::vector<std::int64_t> sizes() const;
  /// Reads a record of one input. The random choices of its maps and recipes differ from those of
  /// all other inputs, even of inputs with the same source.
  void read_input(std::size_t input, std::int64_t index, Sample& sample) const;

 private:
  std::vector<std::shared_ptr<const RecordSource>> inputs_;
};

class ConcatenatedSource final : public JoinedSource {
 public:
  /// The records of several sources, one source after the other. At least one input. Throws Error
  /// (input) if their samples differ.
  explicit ConcatenatedSource(std::vector<std::shared_ptr<const RecordSource>> inputs);

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  std::vector<std::int64_t> ends_;  // end of each input, as ids of this source
};

class InterleavedSource final : public JoinedSource {
 public:
  /// Blocks of records from several sources in turn. Throws Error (input) without inputs, if their
  /// samples differ, and for a cycle or a block of less than 1.
  InterleavedSource(std::vector<std::shared_ptr<const RecordSource>> inputs,
                    std::int64_t cycle_length, std::int64_t block_length);

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  InterleaveOrder order_;
};

}  // namespace lockstep::inline v0::data
