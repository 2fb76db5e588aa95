// The features of a tf.train.Example that make a sample: finding and decoding them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/image/transform.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/sample/sample.h"

namespace lockstep::inline v0::data {

/// A problem of one record, with the texts of an Error.
struct SampleProblem {
  std::string expected;
  std::string actual;
};

/// The contents of the input feature, the same in all records.
enum class InputKind {
  floats,  ///< one float per element
  pixels,  ///< one raw byte per element: value / 255, or unchanged if the sample requests pixels
  encoded_image,  ///< a JPEG or PNG file
};

/// The feature with a sample's weight, one float.
inline constexpr const char* kWeightFeature = "sample_weight";

/// Decodes one feature for each tensor of the spec: floats, integers, one value of raw bytes
/// (uint8), or values of bytes; those of a ragged tensor have any number of values. InputKind
/// describes the first input, if it is float32 and not ragged. Encoded images must have the spec's
/// shape, unless the sample requests them as stored.
class ExampleDecoder {
 public:
  /// `features`: the names of the inputs, then of the targets, then of the weight if there is one.
  ExampleDecoder(SampleSpec spec, InputKind input, std::vector<std::string> features);

  const std::string& input_feature() const { return names_[0]; }  ///< feature of the first input
  /// Feature of the first target, which must exist.
  const std::string& label_feature() const { return names_.at(spec_.inputs.size()); }

  /// Fills `sample`, or returns why the record does not match. Thread-safe; does not allocate on
  /// success.
  std::optional<SampleProblem> decode(std::string_view record, Sample& sample) const;

  /// The problem of an image that cannot be decoded.
  SampleProblem unusable_image(const Error& error) const;
  /// Checks the header of the image of a record; raw pixels have none.
  std::optional<SampleProblem> check_header(const StoredImage& image) const;

 private:
  std::optional<SampleProblem> decode_input(const FeatureView& feature, Sample& sample) const;
  /// Throws Error for an unusable image.
  void decode_image(std::string_view bytes, Sample& sample) const;
  SampleSpec spec_;
  std::size_t count_;  // number of the input's elements
  InputKind input_;
  bool has_plain_input_;                     // the first input is decoded like all others
  std::optional<ImageTransform> as_stored_;  // for encoded images
  std::vector<std::string> names_;
};

/// The class number in `label_feature` of `record`, without an upper limit.
std::optional<SampleProblem> read_class(std::string_view record, const std::string& label_feature,
                                        std::int64_t& label);

/// "JPEG" or "PNG" if `bytes` start like such a file, otherwise nullopt.
std::optional<std::string_view> encoded_image_kind(std::string_view bytes);

/// "it has 12 bytes", or the format of an image that is not supported.
std::string bytes_text(std::string_view bytes);

}  // namespace lockstep::inline v0::data
