// Builds a network from a JSON description. docs/models.md describes the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "lockstep/model/network.h"

namespace lockstep::model {

/// What the data set determines about a model that is trained on it.
struct DataShape {
  std::optional<Shape> input;           ///< shape of one sample; used if the description has no "input"
  std::optional<std::int64_t> classes;  ///< replaces "classes" in a layer with "units": "classes"
};

/// Builds the network that `text` describes. `source`, such as the file name, identifies it in messages. Throws Error
/// (input) that names the source, the layer, the known names and the nearest of them; also if the description's "input"
/// differs from `data.input`.
Network network_from_json(std::string_view text, std::string_view source, const DataShape& data = {});

/// Reads the description from a file. Throws Error (input) if the file cannot be read.
Network read_network(const std::filesystem::path& file, const DataShape& data = {});

}  // namespace lockstep::model
