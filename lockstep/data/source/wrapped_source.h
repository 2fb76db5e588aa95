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
#include "lockstep/data/sample/sample.h"

namespace lockstep::data {

// Sources that reorder or select the records of one source.

/// Base class: everything except the mapping of records.
class WrappedSource : public RecordSource {
 public:
  const SampleSpec& spec() const override { return source_->spec(); }
  bool has_images() const override { return source_->has_images(); }
  bool has_encoded_images() const override { return source_->has_encoded_images(); }
  ChannelNormalization normalization() const override { return source_->normalization(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  bool counts_classes() const override { return source_->counts_classes(); }
  std::vector<std::string> feature_names() const override { return source_->feature_names(); }
  std::vector<std::string> target_names() const override { return source_->target_names(); }
  std::shared_ptr<const TableSchema> table() const override { return source_->table(); }
  std::shared_ptr<const TextSchema> text() const override { return source_->text(); }
  std::vector<DamagedFile> damage() const override { return source_->damage(); }
  std::uint64_t identity() const override { return source_->identity(); }
  std::string description() const override { return source_->description() + ", " + word_; }
  std::string preparation() const override { return source_->preparation() + ", " + word_; }
  RecordChanges changes() const override { return source_->changes(); }

 protected:
  /// `word` describes the operation: "the first 100 records". It can be set later, when it is
  /// known.
  explicit WrappedSource(std::shared_ptr<const RecordSource> source, std::string word = "")
      : source_(std::move(source)), word_(std::move(word)) {}
  void set_word(std::string word) { word_ = std::move(word); }

  const RecordSource& source() const { return *source_; }

 private:
  std::shared_ptr<const RecordSource> source_;
  std::string word_;
};

/// Applies the operations before a record operation: recipe, maps and normalization. Their random
/// choices depend on the pass (Sample) and on the record id in this source, not on later
/// operations.
class PreparedSource final : public WrappedSource {
 public:
  /// The pipeline's order and batches are ignored.
  explicit PreparedSource(Pipeline pipeline);

  const SampleSpec& spec() const override { return pipeline_.spec; }
  std::int64_t size() const override { return source().size(); }
  bool has_images() const override { return pipeline_.gives_pixels(); }
  bool has_encoded_images() const override { return false; }
  ChannelNormalization normalization() const override { return normalization_; }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::vector<StoredFile> files() const override { return source().files(); }
  void will_need(Range record_ids) const override { source().will_need(record_ids); }
  void prefetch(std::int64_t record_id) const override { source().prefetch(record_id); }
  std::string description() const override {
    return source().description() + pipeline_.preparation();
  }
  std::string preparation() const override {
    return source().preparation() + pipeline_.preparation();
  }
  RecordChanges changes() const override { return pipeline_.changes(); }

 private:
  Pipeline pipeline_;
  ChannelNormalization normalization_;
};

class RangeSource final : public WrappedSource {
 public:
  /// Records [records.begin, records.end) of `source`; the range must be valid.
  RangeSource(std::shared_ptr<const RecordSource> source, Range records, std::string word);

  std::int64_t size() const override { return records_.size(); }
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

  std::int64_t size() const override { return source().size() * times_; }
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

  std::int64_t size() const override;
  void read(std::int64_t record_id, Sample& sample) const override;
  void prefetch(std::int64_t record_id) const override { source().prefetch(id_of(record_id)); }
  RecordChanges changes() const override { return {source().changes().images, true}; }

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

  const SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return source().size(); }
  void read(std::int64_t record_id, Sample& sample) const override {
    source().read(record_id, sample);
    for (std::int32_t& label : sample.targets.front().as<std::int32_t>())
      if (label != kMasked) label = number_of(label, record_id);
  }
  std::vector<std::string> class_names() const override { return names_; }
  std::vector<StoredFile> files() const override { return source().files(); }
  void will_need(Range record_ids) const override { source().will_need(record_ids); }
  void prefetch(std::int64_t record_id) const override { source().prefetch(record_id); }

 private:
  // Throws Error (data) for a label, such as one of a user's map, that is no class of the source.
  std::int32_t number_of(std::int32_t label, std::int64_t record_id) const;

  std::vector<std::string> names_;
  std::vector<std::int32_t> numbers_;  // by class number of the source
  SampleSpec spec_;
};

/// The records of another source, with one length of a ragged tensor: longer samples are cut,
/// shorter ones end in zeros, empty strings, or kMasked in a target of class numbers.
class PaddedSource final : public WrappedSource {
 public:
  /// `length` is the first extent of the input or target `name`. Throws Error (input) unless that
  /// is a ragged tensor, and the shape is valid.
  PaddedSource(std::shared_ptr<const RecordSource> source, std::string_view name,
               std::int64_t length);

  const SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return source().size(); }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::vector<StoredFile> files() const override { return source().files(); }
  void will_need(Range record_ids) const override { source().will_need(record_ids); }
  void prefetch(std::int64_t record_id) const override { source().prefetch(record_id); }

 private:
  TensorView& padded(Sample& sample) const {
    return is_target_ ? sample.targets[index_] : sample.inputs[index_];
  }

  SampleSpec spec_;
  bool is_target_ = false;
  std::size_t index_ = 0;
  std::size_t unit_ = 0;  // elements per step of the first extent
  bool pads_masked_ = false;
};

/// Base class. If the images of the sources have different normalizations, or some records are not
/// images, all records are delivered as features.
class JoinedSource : public RecordSource {
 public:
  const SampleSpec& spec() const override { return inputs_.front()->spec(); }
  std::int64_t size() const override { return size_; }
  bool has_images() const override { return has_images_; }
  bool has_encoded_images() const override { return has_encoded_images_; }
  ChannelNormalization normalization() const override;
  std::vector<std::string> class_names() const override { return class_names_; }
  bool counts_classes() const override;
  std::vector<std::string> feature_names() const override { return feature_names_; }
  std::vector<std::string> target_names() const override { return target_names_; }
  std::shared_ptr<const TableSchema> table() const override { return inputs_.front()->table(); }
  std::shared_ptr<const TextSchema> text() const override { return inputs_.front()->text(); }
  std::vector<DamagedFile> damage() const override;
  std::uint64_t identity() const override;
  std::string description() const override;
  std::string preparation() const override;
  RecordChanges changes() const override;

 protected:
  /// `word` names the operation in errors ("interleave") and `how` in descriptions ("one after the
  /// other"). Throws Error (input) that describes the difference if the specs of the samples, the
  /// names of classes, features or targets differ.
  JoinedSource(std::vector<std::shared_ptr<const RecordSource>> inputs, std::string_view word,
               std::string how);

  std::vector<std::int64_t> sizes() const;
  /// Reads a record of one input. The random choices of its maps and recipes differ from those of
  /// all other inputs, even of inputs with the same source.
  void read_of(std::size_t input, std::int64_t index, Sample& sample) const;

 private:
  std::vector<std::shared_ptr<const RecordSource>> inputs_;
  std::string how_;
  std::vector<std::string> class_names_;
  std::vector<std::string> feature_names_;
  std::vector<std::string> target_names_;
  std::int64_t size_ = 0;
  bool has_images_ = true;
  bool has_encoded_images_ = true;
};

class ConcatenatedSource final : public JoinedSource {
 public:
  /// The records of several sources, one source after the other. At least one input. Throws Error
  /// (input) if their samples differ.
  explicit ConcatenatedSource(std::vector<std::shared_ptr<const RecordSource>> inputs);

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  std::vector<std::int64_t> ends_;  // of each input, as ids of this source
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

}  // namespace lockstep::data
