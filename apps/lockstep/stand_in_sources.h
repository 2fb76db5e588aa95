// Sources that leave out a part of the work of reading a data set, so that the rates differ by that part.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/source/tfrecord_source.h"

namespace lockstep::apps {

/// Samples that nothing is done for.
class BlankSource final : public data::RecordSource {
 public:
  BlankSource(data::SampleSpec spec, std::int64_t records) : spec_(std::move(spec)), records_(records) {}
  const data::SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return records_; }
  void read(std::int64_t, data::Sample&) const override {}
  std::string description() const override { return "nothing"; }

 private:
  data::SampleSpec spec_;
  std::int64_t records_;
};

/// The first records of a data set, which must outlive it.
class FirstRecords final : public data::RecordSource {
 public:
  /// `records` from 1 to the size of `source`.
  FirstRecords(const data::RecordSource& source, std::int64_t records);
  const data::SampleSpec& spec() const override { return source_.spec(); }
  std::int64_t size() const override { return records_; }
  bool has_images() const override { return source_.has_images(); }
  void read(std::int64_t record_id, data::Sample& sample) const override { source_.read(record_id, sample); }
  std::string description() const override { return source_.description(); }

 private:
  const data::RecordSource& source_;
  std::int64_t records_;
};

/// Samples as they came out of one epoch of a batched data set, in memory.
class DecodedSamples final : public data::RecordSource {
 public:
  explicit DecodedSamples(const data::Dataset& dataset);
  const data::SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  void read(std::int64_t record_id, data::Sample& sample) const override;
  std::string description() const override { return "decoded samples"; }

 private:
  data::SampleSpec spec_;
  std::vector<float> features_;
  std::vector<std::int32_t> labels_;
  std::vector<float> targets_;
};

/// The first records of TFRecord files as they are stored, in memory; reading one is decoding it.
class StoredRecords final : public data::RecordSource {
 public:
  /// `source` must outlive it; `records` from 1 to its size.
  StoredRecords(const data::TFRecordSource& source, std::int64_t records);
  const data::SampleSpec& spec() const override { return source_.spec(); }
  std::int64_t size() const override { return static_cast<std::int64_t>(records_.size()); }
  bool has_images() const override { return source_.has_images(); }
  void read(std::int64_t record_id, data::Sample& sample) const override;
  std::string description() const override { return "stored records"; }

 private:
  const data::TFRecordSource& source_;
  std::vector<std::string> records_;
};

}  // namespace lockstep::apps
