// Networks from and to a JSON description. docs/models.md describes the format.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/model/network.h"

namespace lockstep::model {

/// Builds the network that `text` describes. `source`, such as the file name, identifies it in
/// messages. Throws Error (input) that names the source, the layer, the known names and the nearest
/// of them; also if the description's only input differs from `data.input`.
Network network_from_json(std::string_view text, std::string_view source,
                          const DataShape& data = {});

/// The description of `network`, from which network_from_json() builds an equal one: the same
/// inputs, layers, names and options. nullopt if it has no layers, a user-defined layer, or one
/// with the name of an input (of a single input: "input"), which a description cannot hold.
std::optional<nlohmann::json> network_to_json(const Network& network);

/// The type of `layer` in descriptions, such as "conv2d", and its options; the type is empty for
/// layers that are not of this library.
std::pair<std::string_view, nlohmann::json> describe_layer(const Layer& layer);

/// Reads the description from a file. Throws Error (input) if the file cannot be read.
Network read_network(const std::filesystem::path& file, const DataShape& data = {});

}  // namespace lockstep::model
