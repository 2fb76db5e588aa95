// Numbers that scripts/make_reference_mobilenet.py computes too, so that they need no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/model/tensor/parameters.h"

namespace lockstep::inline v0::model {

/// Number `index` of `seed`, in [-1, 1).
double hashed(std::uint32_t index, std::uint32_t seed);

/// `count` numbers in 0 .. limit-1.
std::vector<std::int32_t> hashed_below(std::int32_t limit, std::size_t count, std::uint32_t seed);

/// Fills a parameter, or a moving statistic, with numbers scaled according to its name.
void fill_hashed(const ParameterInfo& entry, std::uint32_t seed, std::span<float> values);

}  // namespace lockstep::inline v0::model
