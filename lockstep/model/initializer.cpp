#include "lockstep/model/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/text.h"

namespace lockstep::model {
namespace {

using Block = std::array<float, 4>;
using Words = std::array<std::uint32_t, 4>;

Block uniform(const Words& words, float limit) {
  Block values;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = limit * (2 * to_unit_float(words[i]) - 1);
  return values;
}

// Two pairs of normal numbers (Box and Muller, Annals of Mathematical Statistics 1958). In double, so that a last bit
// in which two mathematics libraries differ is rounded away.
Block normal(const Words& words, double deviation) {
  Block values;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const double above_zero = 1.0 - to_unit_float(words[i]);
    const double radius = deviation * std::sqrt(-2.0 * std::log(above_zero));
    const double angle = 2.0 * std::numbers::pi * to_unit_float(words[i + 1]);
    values[i] = static_cast<float>(radius * std::cos(angle));
    values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

// Block b of the parameter's stream gives elements 4b .. 4b+3.
template <typename Draw>
void fill(std::uint64_t seed, std::string_view name, std::span<float> values, Draw draw) {
  const Philox generator(random_key(seed, name));
  for (std::size_t begin = 0; begin < values.size(); begin += 4) {
    const Block block = draw(generator.block(0, begin / 4));
    std::copy_n(block.begin(), std::min<std::size_t>(4, values.size() - begin),
                values.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

double checked_fan(std::int64_t fan) {
  LOCKSTEP_CHECK_OP(fan, >, 0);
  return static_cast<double>(fan);
}

}  // namespace

void initialize(const Initializer& initializer, std::uint64_t seed, std::string_view name, std::span<float> values) {
  const auto fill_uniform = [&](double limit) {
    fill(seed, name, values, [limit](const Words& words) { return uniform(words, static_cast<float>(limit)); });
  };
  switch (initializer.kind) {
    case Initializer::Kind::constant:
      std::ranges::fill(values, initializer.value);
      return;
    case Initializer::Kind::glorot_uniform:
      return fill_uniform(std::sqrt(6.0 / (checked_fan(initializer.fan_in) + checked_fan(initializer.fan_out))));
    case Initializer::Kind::he_uniform:
      return fill_uniform(std::sqrt(6.0 / checked_fan(initializer.fan_in)));
    case Initializer::Kind::he_normal: {
      const double deviation = std::sqrt(2.0 / checked_fan(initializer.fan_in));
      return fill(seed, name, values, [deviation](const Words& words) { return normal(words, deviation); });
    }
  }
}

Initializer::Kind parse_initializer(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kNames = {"glorot_uniform", "he_normal", "he_uniform", "zeros"};
  static constexpr std::array<Initializer::Kind, 4> kKinds = {
      Initializer::Kind::glorot_uniform, Initializer::Kind::he_normal, Initializer::Kind::he_uniform,
      Initializer::Kind::constant};
  const auto* const found = std::ranges::find(kNames, name);
  if (found == kNames.end())
    throw Error(ErrorCategory::input, "initializer", "needed one of " + list_names(kNames), got_name(name, kNames));
  return kKinds[static_cast<std::size_t>(found - kNames.begin())];
}

}  // namespace lockstep::model
