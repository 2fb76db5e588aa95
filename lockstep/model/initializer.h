// Initial values of parameters: a pure function of (seed, parameter name).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::model {

/// How a parameter begins. `fan_in` and `fan_out` are numbers of connections; constant ones ignore them.
struct Initializer {
  /// The distribution. Those of Glorot and He are scaled by the fans below.
  enum class Kind {
    constant,        ///< every element is `value`
    glorot_uniform,  ///< U(-l, l), l = sqrt(6 / (fan_in + fan_out)): Glorot and Bengio, AISTATS 2010
    he_normal,       ///< N(0, 2 / fan_in): He et al., ICCV 2015
    he_uniform,      ///< U(-l, l), l = sqrt(6 / fan_in): the same paper
  };
  Kind kind = Kind::constant;  ///< which of them
  float value = 0;             ///< of a constant
  std::int64_t fan_in = 0;     ///< inputs of one output
  std::int64_t fan_out = 0;    ///< outputs of one input
};

/// Fills `values` for the parameter `name`. The same numbers for the same (seed, name, size) everywhere.
void initialize(const Initializer& initializer, std::uint64_t seed, std::string_view name, std::span<float> values);

/// Reads "glorot_uniform", "he_normal", "he_uniform", "zeros". Throws Error (input) with the names.
Initializer::Kind parse_initializer(std::string_view name);

}  // namespace lockstep::model
