// Builds a network from a JSON description. docs/models.md describes the format.
#pragma once

#include <filesystem>
#include <string_view>

#include "lockstep/model/network.h"

namespace lockstep::model {

/// Builds the network that `text` describes. `source`, such as the file name, identifies it in
/// messages. Throws Error (input) that names the source, the layer, the known names and the nearest
/// of them; also if the description's "input" differs from `data.input`.
Network network_from_json(std::string_view text, std::string_view source,
                          const DataShape& data = {});

/// Reads the description from a file. Throws Error (input) if the file cannot be read.
Network read_network(const std::filesystem::path& file, const DataShape& data = {});

}  // namespace lockstep::model
