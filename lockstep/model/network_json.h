// A network from a JSON description; docs/models.md has the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "lockstep/model/network.h"

namespace lockstep::model {

/// What the data set says of a model that is to be trained on it.
struct DataShape {
  std::optional<Shape> input;           ///< of one sample; used where the description has no "input"
  std::optional<std::int64_t> classes;  ///< replaces "classes" where a layer says "units": "classes"
};

/// Builds the network that `text` describes; `source` names it in messages, such as the file. Throws Error (input) that
/// names the source, the layer, what is known there and the nearest known name; also where the description's own
/// "input" differs from `data.input`.
Network network_from_json(std::string_view text, std::string_view source, const DataShape& data = {});

/// The same for a file. Throws Error (input) where it cannot be read.
Network read_network(const std::filesystem::path& file, const DataShape& data = {});

}  // namespace lockstep::model
