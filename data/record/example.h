// tf.train.Example: named lists of bytes, floats or integers, in protobuf's wire format.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/record/feature_view.h"

namespace lockstep::data {

using BytesList = std::vector<std::string>;   ///< A feature's values: texts, or encoded images.
using FloatList = std::vector<float>;         ///< A feature's values: numbers.
using Int64List = std::vector<std::int64_t>;  ///< A feature's values: labels and counts.

/// A value that owns its lists, for writing and for looking at a few. `monostate`: the feature is named but has no
/// kind, which means missing.
using Feature = std::variant<std::monostate, BytesList, FloatList, Int64List>;
using Example = std::map<std::string, Feature>;  ///< A tf.train.Example: features by name.

/// The message, features in the order of their names, numbers packed.
std::string serialize_example(const Example& example);

/// Reads everything. As protobuf does: numbers packed or not, features in any order, the last of several of one name
/// wins, unknown fields are skipped. Throws MalformedExample.
Example parse_example(std::string_view record);

/// "the features image (bytes), label (int64)": what a record has, for messages. Throws MalformedExample.
std::string feature_list(std::string_view record);

}  // namespace lockstep::data
