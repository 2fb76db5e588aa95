// Samples that a function makes.
#pragma once

#include <cstdint>
#include <string>

#include "data/sample.h"

namespace lockstep::data {

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
