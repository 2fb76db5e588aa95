// Initial values of parameters: a pure function of (seed, parameter name).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model {

/// How a parameter is initialized. `fan_in` and `fan_out` are numbers of connections; the kinds
/// `constant`, `uniform` and `normal` ignore them.
struct Initializer {
  /// The distribution. The Glorot and He distributions are scaled by the fans below.
  enum class Kind {
    constant,        ///< every element is `value`
    glorot_uniform,  ///< U(-l, l), l = sqrt(6 / (fan_in + fan_out)): Glorot and Bengio, AISTATS
                     ///< 2010
    he_normal,       ///< N(0, 2 / fan_in): He et al., ICCV 2015
    he_uniform,      ///< U(-l, l), l = sqrt(6 / fan_in): He et al., ICCV 2015
    uniform,         ///< U(-value, value); has no name in descriptions
    normal,          ///< N(0, value^2); in descriptions "stddev" of some layers
    /// Random columns of length 1 that are orthogonal, of a matrix [rows, fan_in] with at least as
    /// many rows: Saxe et al., arXiv 1312.6120. Has no name in descriptions.
    orthogonal,
  };
  Kind kind = Kind::constant;  ///< the distribution
  float value = 0;             ///< value of kind `constant`, limit of kind `uniform`,
                               ///< standard deviation of kind `normal`
  std::int64_t fan_in = 0;     ///< inputs per output
  std::int64_t fan_out = 0;    ///< outputs per input
  /// If set, writes the values for a seed instead of a distribution. Called from several threads.
  std::function<void(std::uint64_t seed, std::span<float> values)> draw = {};
};

/// Fills `values` for the parameter `name`. The same (seed, name, size) gives the same numbers on
/// every platform.
void initialize(const Initializer& initializer, std::uint64_t seed, std::string_view name,
                std::span<float> values);

/// Parses "glorot_uniform", "he_normal", "he_uniform" or "zeros". Throws Error (input) that lists
/// the names.
Initializer::Kind parse_initializer(std::string_view name);
/// The name that parse_initializer() accepts.
std::string_view to_string(Initializer::Kind kind);

/// The settings of an update that differ between parameters.
struct UpdateGroup {
  bool decay = true;      ///< whether weight decay applies; false for biases and normalization
  float rate_factor = 1;  ///< factor on the learning rate
  std::optional<float> weight_decay = {};  ///< replaces the optimizer's decay

  bool operator==(const UpdateGroup&) const = default;
};

// The layout of a flat array: the name, shape and offset of each parameter.

/// One parameter (or one non-trained buffer, such as a moving mean) in a flat float32 array.
struct ParameterInfo {
  std::string name;  ///< "conv2d_1/kernel"
  Shape shape;       ///< shape of the row-major array
  /// Offset of the first element in the flat array; a multiple of 16 elements (64 bytes).
  std::size_t offset = 0;
  std::size_t count = 0;  ///< elements
  /// Whether weight decay applies; false for biases and normalization parameters.
  bool decay = true;
  Initializer initializer;                 ///< how its initial values are drawn
  bool trained = true;                     ///< false: frozen, see Network::freeze()
  float rate_factor = 1;                   ///< see Network::set_group()
  std::optional<float> weight_decay = {};  ///< see Network::set_group()

  /// Its settings for updates.
  UpdateGroup group() const {
    return {.decay = decay, .rate_factor = rate_factor, .weight_decay = weight_decay};
  }
};

/// Parameters in flat order, which is the order in which backward completes their gradients: last
/// layer first, and frozen ones, which have none, at the end. Thus the completed gradients form a
/// growing prefix, and a gradient bucket is a contiguous range. Between parameters are up to 15
/// elements of padding, always zero.
class ParameterTable {
 public:
  /// Lays out `parameters` in the given order and sets their offsets and counts.
  explicit ParameterTable(std::vector<ParameterInfo> parameters = {});

  /// In declaration order, which is also flat order.
  std::span<const ParameterInfo> entries() const { return entries_; }
  /// Elements of the flat array, with padding.
  std::size_t flat_size() const { return flat_size_; }
  /// Elements of all parameters, without padding.
  std::size_t element_count() const { return element_count_; }
  std::vector<std::size_t> indices_by_name() const;  ///< indices into entries(), sorted by name
  const ParameterInfo* find(std::string_view name) const;  ///< nullptr if absent
  /// Indices of the parameters whose names match `pattern`, a glob in which * also matches "/":
  /// "conv*", "*/kernel". Throws Error (input) of `where` that lists names if none matches.
  std::vector<std::size_t> matching(std::string_view where, const std::string& pattern) const;

  /// The part of a flat array that belongs to `entry`.
  static std::span<float> slice(std::span<float> flat, const ParameterInfo& entry) {
    return flat.subspan(entry.offset, entry.count);
  }
  /// Read-only overload.
  static std::span<const float> slice(std::span<const float> flat, const ParameterInfo& entry) {
    return flat.subspan(entry.offset, entry.count);
  }

  /// xxh3-64 over the bytes of all parameters in name order, without padding.
  std::uint64_t hash(std::span<const float> flat) const;

 private:
  std::vector<ParameterInfo> entries_;
  std::size_t flat_size_ = 0;
  std::size_t element_count_ = 0;
};

/// Called once per parameter when its gradient is complete, in flat order. The argument is the
/// index in ParameterTable::entries().
using GradientReady = std::function<void(std::size_t parameter)>;

}  // namespace lockstep::inline v0::model
