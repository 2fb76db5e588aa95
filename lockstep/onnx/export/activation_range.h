// The range of an activation that 8-bit integers represent, from observed values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/model/layers/elementwise/fake_quantize.h"

namespace lockstep::inline v0::onnx {

/// How a range is chosen from values.
enum class Calibration {
  min_max,     ///< all values
  percentile,  ///< without the lowest and the highest values, 0.01% each
  /// The threshold for which the distribution of the integers is nearest to that of the values, by
  /// the Kullback-Leibler divergence (Migacz, "8-bit inference with TensorRT", GTC 2017).
  entropy,
};

/// The values that integers represent; others are clamped.
struct ActivationRange {
  float low = 0;   ///< at most 0
  float high = 0;  ///< at least 0

  bool operator==(const ActivationRange&) const = default;
};

/// The rounding of `range` to uint8, in which 0 is exact. A range of 0 only has scale 1.
model::FakeQuantizeFunction rounding_to_uint8(const ActivationRange& range);

/// Counts values by their magnitude, in 2048 bins on each side of 0. When a value is above the last
/// bin, all bins double their width, so the result does not depend on the order of the values.
class ActivationHistogram {
 public:
  /// Counts `values`. Returns false, without a change, if one is not finite.
  bool add(std::span<const float> values);

  /// The range of the values so far; always includes 0.
  ActivationRange range(Calibration calibration) const;

 private:
  static constexpr std::int64_t kBins = 2048;
  using Counts = std::vector<std::int64_t>;

  void grow(double largest);
  ActivationRange percentile() const;
  double threshold() const;

  double limit_ = 0;              // upper edge of the last bin, a power of two; 0: all values are 0
  Counts below_ = Counts(kBins);  // negative values, by magnitude
  Counts above_ = Counts(kBins);
  std::int64_t zeros_ = 0;
  float lowest_ = 0;
  float highest_ = 0;
};

}  // namespace lockstep::inline v0::onnx

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<onnx::Calibration> =
    enum_names<onnx::Calibration>({{onnx::Calibration::min_max, "min-max"},
                                   {onnx::Calibration::percentile, "percentile"},
                                   {onnx::Calibration::entropy, "entropy"}});

}  // namespace lockstep::inline v0
