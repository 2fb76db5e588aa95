// Another order or choice of the records of one source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/data/order/batch_split.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// What such sources have in common: everything but which record is where.
class WrappedSource : public RecordSource {
 public:
  const SampleSpec& spec() const override { return source_->spec(); }
  bool has_images() const override { return source_->has_images(); }
  bool has_encoded_images() const override { return source_->has_encoded_images(); }
  ChannelNormalization normalization() const override { return source_->normalization(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  std::vector<DamagedFile> damage() const override { return source_->damage(); }
  std::string description() const override { return source_->description() + ", " + word_; }
  std::string preparation() const override { return source_->preparation() + ", " + word_; }

 protected:
  /// `word` tells what is done: "the first 100 records"; it may be set once that is known.
  explicit WrappedSource(std::shared_ptr<const RecordSource> source, std::string word = "")
      : source_(std::move(source)), word_(std::move(word)) {}
  void set_word(std::string word) { word_ = std::move(word); }

  const RecordSource& source() const { return *source_; }

 private:
  std::shared_ptr<const RecordSource> source_;
  std::string word_;
};

// A run of the records of another source.

class RangeSource final : public WrappedSource {
 public:
  /// Records [records.begin, records.end) of `source`, which has them.
  RangeSource(std::shared_ptr<const RecordSource> source, Range records, std::string word);

  std::int64_t size() const override { return records_.size(); }
  void read(std::int64_t record_id, Sample& sample) const override {
    source().read(records_.begin + record_id, sample);
  }

 private:
  Range records_;
};

// All records of another source, several times.

/// Each time is an epoch of its own for what stands before it: epoch e of this source is epochs e * times to
/// e * times + times - 1 of those maps and recipes, so that they choose anew.
class RepeatedSource final : public WrappedSource {
 public:
  /// Throws Error (input) for less than one time, or for more records than can be counted.
  RepeatedSource(std::shared_ptr<const RecordSource> source, std::int64_t times);

  std::int64_t size() const override { return source().size() * times_; }
  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  std::int64_t times_;
};

// Those records of another source that a predicate is true for.

class FilteredSource final : public WrappedSource {
 public:
  /// Reads every record once, by `threads` threads, as it is in epoch 0 of seed 0, and keeps the ids of those that
  /// `keep` is true for: 4 bytes each, 8 where `source` has 2^32 records or more. Throws the first error in the order
  /// of the records.
  FilteredSource(std::shared_ptr<const RecordSource> source, const SamplePredicate& keep, int threads);

  std::int64_t size() const override;
  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  std::variant<std::vector<std::uint32_t>, std::vector<std::int64_t>> ids_;
};

}  // namespace lockstep::data
