// Samples that a program has in memory.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/data/sample.h"

namespace lockstep::data {

/// Of all records, one after the other: floats, or images of uint8.
using MemoryFeatures = std::variant<std::vector<float>, std::vector<std::uint8_t>>;
/// Class numbers [N], or targets [N, targets].
using MemoryLabels = std::variant<std::vector<std::int32_t>, std::vector<float>>;

/// Owns its samples.
class MemorySource final : public RecordSource {
 public:
  /// `features` [N, spec.shape...]; `labels` [N] where the spec has classes, [N, spec.targets] where it has targets.
  /// Throws Error (input) for a spec that makes no sense and for sizes that do not fit it or each other; Error (data)
  /// for a label outside 0 .. classes-1.
  MemorySource(MemoryFeatures features, MemoryLabels labels, SampleSpec spec);

  const SampleSpec& spec() const override { return spec_; }  ///< what every sample looks like
  std::int64_t size() const override { return records_; }
  bool has_images() const override { return std::holds_alternative<std::vector<std::uint8_t>>(features_); }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::string description() const override;

 private:
  void check_sizes() const;
  void check_classes() const;

  MemoryFeatures features_;
  MemoryLabels labels_;
  SampleSpec spec_;
  std::int64_t records_ = 0;
};

/// Samples that a function makes.
class GeneratorSource final : public RecordSource {
 public:
  /// Throws Error (input) for a spec that makes no sense, a count below 0 and an empty function.
  GeneratorSource(SampleSpec spec, std::int64_t count, SampleGenerator generate);

  const SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return count_; }
  /// What the generator throws becomes an Error (data) with the record id; so does a label outside 0 .. classes-1.
  void read(std::int64_t record_id, Sample& sample) const override;
  std::string description() const override;

 private:
  SampleSpec spec_;
  std::int64_t count_;
  SampleGenerator generate_;
};

}  // namespace lockstep::data
