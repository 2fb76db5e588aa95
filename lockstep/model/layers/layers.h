// All layers of this library, and the table in which descriptions find them by name.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "lockstep/model/layers/batch_normalization/batch_normalization.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/dense/dense.h"
#include "lockstep/model/layers/elementwise/elementwise.h"
#include "lockstep/model/layers/pooling/pooling.h"

namespace lockstep::model {

/// A layer type of network descriptions (network_json.h).
struct LayerType {
  std::string_view name;  ///< the value of "type"
  /// Reads the options of the layer from its description. Throws Error (input).
  std::shared_ptr<const Layer> (*read)(JsonObject& object, const DataShape& data);
  /// Writes the options of the layer as `read` reads them; false if it is of another type.
  bool (*write)(const Layer& layer, nlohmann::json& object);
};

/// L::read, or for layers without options their only value.
template <typename L>
std::shared_ptr<const Layer> read_layer(JsonObject& object, const DataShape& data) {
  if constexpr (requires { L::read(object, data); })
    return L::read(object, data);
  else
    return std::make_shared<const L>();
}

/// Writes the options of `layer` with L::write, if it is an L and has options.
template <typename L>
bool write_layer(const Layer& layer, nlohmann::json& object) {
  const auto* const own = dynamic_cast<const L*>(&layer);
  if (own == nullptr) return false;
  if constexpr (requires { own->write(object); }) own->write(object);
  return true;
}

/// All types, in the order in which messages list them.
inline constexpr auto kLayerTypes = std::to_array<LayerType>({
    {"conv2d", read_layer<Conv2D>, write_layer<Conv2D>},
    {"dense", read_layer<Dense>, write_layer<Dense>},
    {"batch_normalization", read_layer<BatchNormalization>, write_layer<BatchNormalization>},
    {"relu", read_layer<ReLU>, write_layer<ReLU>},
    {"softmax", read_layer<Softmax>, write_layer<Softmax>},
    {"dropout", read_layer<Dropout>, write_layer<Dropout>},
    {"flatten", read_layer<Flatten>, write_layer<Flatten>},
    {"add", read_layer<Add>, write_layer<Add>},
    {"max_pool2d", read_layer<MaxPool2D>, write_layer<MaxPool2D>},
    {"average_pool2d", read_layer<AveragePool2D>, write_layer<AveragePool2D>},
    {"global_average_pooling2d", read_layer<GlobalAveragePooling2D>,
     write_layer<GlobalAveragePooling2D>},
});

}  // namespace lockstep::model
