// From the bytes of a tf.train.Example to a sample.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/data/image/transform.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// What is wrong with one record, in the words of Error.
struct SampleProblem {
  std::string needed;
  std::string given;
};

/// What the input feature holds, the same in all records.
enum class InputKind {
  floats,         ///< one for each element
  pixels,         ///< one raw byte for each element: value / 255, or as it is where the sample asks for pixels
  encoded_image,  ///< a JPEG or PNG file
};

/// Reads one input and one label feature. The label is one integer, or, where the spec has targets instead of classes,
/// that many floats. Images are given to the sample's ImageStep; without one they must have the spec's shape.
class ExampleDecoder {
 public:
  ExampleDecoder(SampleSpec spec, InputKind input, std::string input_feature, std::string label_feature);

  const SampleSpec& spec() const { return spec_; }
  InputKind input() const { return input_; }
  const std::string& input_feature() const { return names_[0]; }
  const std::string& label_feature() const { return names_[1]; }

  /// Fills `sample`, or says why the record does not fit. Thread-safe; allocates nothing where it fits.
  std::optional<SampleProblem> decode(std::string_view record, Sample& sample) const;

 private:
  std::optional<SampleProblem> decode_input(const FeatureView& feature, Sample& sample) const;
  /// Throws Error for an image that cannot be used.
  void decode_image(std::string_view bytes, Sample& sample) const;
  std::optional<SampleProblem> decode_label(const FeatureView& feature, Sample& sample) const;

  SampleSpec spec_;
  std::size_t count_;  // of the input's elements
  InputKind input_;
  std::optional<ImageTransform> as_stored_;  // of encoded images
  std::array<std::string, 2> names_;
};

/// The class number in `label_feature` of `record`, whatever the number of classes.
std::optional<SampleProblem> read_class(std::string_view record, const std::string& label_feature, std::int64_t& label);

/// "JPEG" or "PNG" where `bytes` begin as such a file does, else nothing.
std::optional<std::string_view> encoded_image_kind(std::string_view bytes);

}  // namespace lockstep::data
