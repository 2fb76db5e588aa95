// All layers of this library, and the table in which descriptions find them by name.
#pragma once

#include <array>
#include <memory>
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
};

/// L::read, or for layers without options their only value.
template <typename L>
std::shared_ptr<const Layer> read_layer(JsonObject& object, const DataShape& data) {
  if constexpr (requires { L::read(object, data); })
    return L::read(object, data);
  else
    return std::make_shared<const L>();
}

/// All types, in the order in which messages list them.
inline constexpr auto kLayerTypes = std::to_array<LayerType>({
    {"conv2d", read_layer<Conv2D>},
    {"dense", read_layer<Dense>},
    {"batch_normalization", read_layer<BatchNormalization>},
    {"relu", read_layer<ReLU>},
    {"softmax", read_layer<Softmax>},
    {"dropout", read_layer<Dropout>},
    {"flatten", read_layer<Flatten>},
    {"add", read_layer<Add>},
    {"max_pool2d", read_layer<MaxPool2D>},
    {"average_pool2d", read_layer<AveragePool2D>},
    {"global_average_pooling2d", read_layer<GlobalAveragePooling2D>},
});

}  // namespace lockstep::model
