// From the bytes of a tf.train.Example to a sample.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "data/record/example.h"
#include "data/sample.h"

namespace lockstep::data {

/// What is wrong with one record, in the words of Error.
struct SampleProblem {
  std::string needed;
  std::string given;
};

/// Reads one input and one label feature. The input is raw unsigned bytes, one for each element (which become value /
/// 255, or stay as they are where the sample asks for pixels), or floats, one for each element. The label is one
/// integer, or, where the spec has targets instead of classes, that many floats.
class ExampleDecoder {
 public:
  ExampleDecoder(SampleSpec spec, std::string input_feature, std::string label_feature);

  const SampleSpec& spec() const { return spec_; }
  const std::string& input_feature() const { return names_[0]; }
  const std::string& label_feature() const { return names_[1]; }

  /// Fills `sample`, or says why the record does not fit. Thread-safe; allocates nothing where it fits.
  std::optional<SampleProblem> decode(std::string_view record, Sample& sample) const;

 private:
  std::optional<SampleProblem> decode_input(const FeatureView& feature, Sample& sample) const;
  std::optional<SampleProblem> decode_label(const FeatureView& feature, Sample& sample) const;

  SampleSpec spec_;
  std::array<std::string, 2> names_;
};

/// The class number in `label_feature` of `record`, whatever the number of classes.
std::optional<SampleProblem> read_class(std::string_view record, const std::string& label_feature, std::int64_t& label);

/// "JPEG" or "PNG" where `bytes` begin as such a file does, else nothing.
std::optional<std::string_view> encoded_image_kind(std::string_view bytes);

/// The problem of a record whose image is still encoded.
SampleProblem encoded_image_problem(const std::string& feature, std::string_view kind);

/// "features image (bytes), label (int64)": what a record has, for messages.
std::string feature_list(std::string_view record);

}  // namespace lockstep::data
