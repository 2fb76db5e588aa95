// Field numbers. Example: 1 features. Features: 1 map entry. Entry: 1 key, 2 value. Feature: 1
// bytes, 2 floats, 3 int64s. Lists: 1 value.
#pragma once

#include <protozero/types.hpp>

namespace lockstep::inline v0::data {

inline constexpr protozero::pbf_tag_type kFeatures = 1;
inline constexpr protozero::pbf_tag_type kEntry = 1;
inline constexpr protozero::pbf_tag_type kKey = 1;
inline constexpr protozero::pbf_tag_type kValue = 2;
inline constexpr protozero::pbf_tag_type kListOf[] = {0, 1, 2, 3};  // indexed by FeatureKind
inline constexpr protozero::pbf_tag_type kListValue = 1;

}  // namespace lockstep::inline v0::data
