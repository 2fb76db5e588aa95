// Test data: numbers that depend on position and seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::inline v0::model {

/// `count` numbers in [-1, 1), a pure function of (seed, index).
std::vector<float> numbers(std::size_t count, std::uint64_t seed);

/// `count` labels in 0 .. classes-1, a pure function of (seed, index).
std::vector<std::int32_t> labels(std::size_t count, std::int32_t classes, std::uint64_t seed);

}  // namespace lockstep::inline v0::model
