// The table of a flat array: which parameter is where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/model/initializer.h"
#include "lockstep/model/shape.h"

namespace lockstep::model {

/// One parameter (or one non-trained buffer, such as a moving mean) in a flat float32 array.
struct ParameterInfo {
  std::string name;         ///< "conv2d_1/kernel"
  Shape shape;              ///< of the array, row-major
  std::size_t offset = 0;   ///< of its first element in the flat array; a multiple of 16 elements (64 bytes)
  std::size_t count = 0;    ///< elements
  bool decay = true;        ///< whether weight decay applies; off for biases and normalization parameters
  Initializer initializer;  ///< how its first values are drawn
};

/// Parameters in flat order, which is the order in which backward completes their gradients: last layer first. So the
/// gradients that are ready form a growing prefix, and a gradient bucket is a range. Between parameters lie up to 15
/// elements of padding, always zero.
class ParameterTable {
 public:
  /// Lays out `parameters` in the given order; sets their offsets and counts.
  explicit ParameterTable(std::vector<ParameterInfo> parameters = {});

  /// In the order of declaration, which is that of their places.
  std::span<const ParameterInfo> entries() const { return entries_; }
  std::size_t flat_size() const { return flat_size_; }          ///< elements of the flat array, padding included
  std::size_t element_count() const { return element_count_; }  ///< elements that are parameters
  std::vector<std::size_t> indices_by_name() const;             ///< indices into entries(), names ascending
  const ParameterInfo* find(std::string_view name) const;       ///< nullptr if absent

  /// The part of a flat array that belongs to `entry`.
  static std::span<float> slice(std::span<float> flat, const ParameterInfo& entry) {
    return flat.subspan(entry.offset, entry.count);
  }
  /// The part of the flat array that is this entry's.
  static std::span<const float> slice(std::span<const float> flat, const ParameterInfo& entry) {
    return flat.subspan(entry.offset, entry.count);
  }

  /// xxh3-64 over the bytes of all parameters in the order of their names, padding excluded.
  std::uint64_t hash(std::span<const float> flat) const;

 private:
  std::vector<ParameterInfo> entries_;
  std::size_t flat_size_ = 0;
  std::size_t element_count_ = 0;
};

/// Called once per parameter when its gradient is complete, in flat order; the argument is its index in
/// ParameterTable::entries().
using GradientReady = std::function<void(std::size_t parameter)>;

}  // namespace lockstep::model
