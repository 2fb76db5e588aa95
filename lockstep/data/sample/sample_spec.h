// The tensors of a data set's samples: names, types and shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/element_type.h"

namespace lockstep::inline v0::data {

/// The ElementType of a C++ type.
template <typename T>
constexpr ElementType element_type_of() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return ElementType::uint8;
  if constexpr (std::is_same_v<T, std::int32_t>) return ElementType::int32;
  if constexpr (std::is_same_v<T, std::int64_t>) return ElementType::int64;
  if constexpr (std::is_same_v<T, float>) return ElementType::float32;
  if constexpr (std::is_same_v<T, std::string>) return ElementType::bytes;
  static_assert(std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::int32_t> ||
                std::is_same_v<T, std::int64_t> || std::is_same_v<T, float> ||
                std::is_same_v<T, std::string>);
}

/// The largest number of elements of one tensor of a sample.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 28;

/// The product of `shape`, at most 2^63 - 1; 1 if it is empty, 0 with an extent below 1.
std::int64_t element_count(std::span<const std::int64_t> shape);

/// One tensor of every sample.
struct TensorSpec {
  std::string name;                         ///< unique among the inputs and targets
  ElementType type = ElementType::float32;  ///< element type; bytes: std::string
  /// Extents without the batch; empty: a single value. The first extent may be -1: it differs
  /// between samples (TensorView::set_length), and a batch is padded to its longest sample.
  std::vector<std::int64_t> shape = {};
  /// Number of classes of a target, or of categories of an input, which are int32 from 0 to
  /// classes-1; 0: other values. A target with a shape has a class number for each position; the
  /// loss ignores -1.
  std::int64_t classes = 0;

  /// The smallest class number, if this is a target with classes.
  std::int32_t first_class() const { return shape.empty() ? 0 : -1; }
  bool is_ragged() const { return !shape.empty() && shape.front() == -1; }  ///< unknown extent
  /// Whether all samples have the same number of bytes.
  bool has_fixed_size() const { return !is_ragged() && type != ElementType::bytes; }
  std::int64_t elements() const { return element_count(shape); }  ///< per sample; 0 if ragged
  std::size_t bytes() const {  ///< per sample; 0 unless it has a fixed size
    return static_cast<std::size_t>(elements()) * element_bytes(type);
  }
  bool operator==(const TensorSpec&) const = default;
};

/// What the records of a data set contain.
struct SampleSpec {
  std::vector<TensorSpec> inputs = {};  ///< what networks read
  /// What losses read; empty for data without labels, which only predictions can use.
  std::vector<TensorSpec> targets = {};
  bool weighted = false;  ///< every sample has a weight in the loss

  /// The float input "features" and the class number "label".
  static SampleSpec classification(std::vector<std::int64_t> shape, std::int64_t classes);
  /// The float input "features" and the `targets` floats of "target".
  static SampleSpec regression(std::vector<std::int64_t> shape, std::int64_t targets);

  // The first input and the first target.

  /// Shape of the features without the batch: [H, W, C] or [F].
  const std::vector<std::int64_t>& shape() const;
  std::int64_t feature_count() const;  ///< product of shape()
  std::int64_t classes() const;        ///< 0 without a target of class numbers
  std::int64_t target_count() const;   ///< number of floats; 0 without a float target

  /// One float input and one class number or float target, without weights.
  bool is_single() const;
  bool operator==(const SampleSpec&) const = default;
};

/// "[28, 28, 1] with 10 classes", "[2] with 3 targets", "[4] without labels", "image [8, 8, 3] and
/// table [5] with price [1] and kind (3 classes), weighted".
std::string to_string(const SampleSpec& spec);
/// "table [5]", "tokens int64 [?]", "kind (3 classes)", "next [64] (65 classes)".
std::string to_string(const TensorSpec& tensor);

/// Throws Error (input) unless the shape has at least one extent, all extents are positive, and
/// their product is at most 2^28.
void check_shape(std::span<const std::int64_t> shape, const std::string& where);

/// Throws Error (input) unless there is an input, all shapes are those of check_shape() (the first
/// extent may be -1; only those of float32 and uint8 inputs must not be empty), names are unique,
/// int32 targets are class numbers, and inputs with categories are int32.
void check_spec(const SampleSpec& spec, const std::string& where);

/// Throws Error (input), with what to do, unless all tensors have a fixed size.
void check_fixed_sizes(std::span<const TensorSpec> tensors, const std::string& where);

}  // namespace lockstep::inline v0::data
