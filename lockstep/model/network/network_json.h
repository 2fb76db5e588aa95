// Networks from and to a JSON description. docs/models.md describes the format.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::model {

/// Builds the network that `text` describes. `source`, such as the file name, identifies it in
/// messages. Throws Error (input) that names the source, the layer and the nearest known name, also
/// if the description's only input differs from `data.input`.
Network network_from_json(std::string_view text, std::string_view source,
                          const DataShape& data = {});

/// The description from which network_from_json() builds an equal network. nullopt if the network
/// has no layers, a user-defined layer, or a layer named as an input (a single input is called
/// "input").
std::optional<nlohmann::json> network_to_json(const Network& network);

/// The type of `layer` in descriptions, such as "conv2d"; empty for user-defined layers.
std::string_view type_of(const Layer& layer);

/// Reads the description from a file. Throws Error (input) if the file cannot be read.
Network read_network(const std::filesystem::path& file, const DataShape& data = {});

}  // namespace lockstep::inline v0::model
