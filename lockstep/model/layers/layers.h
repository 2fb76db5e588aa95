// All layers of this library, and the table of their names in descriptions.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/additive_attention/additive_attention.h"
#include "lockstep/model/layers/attention/attention.h"
#include "lockstep/model/layers/batch_normalization/batch_normalization.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/conv_2d/derived.h"
#include "lockstep/model/layers/dense/dense.h"
#include "lockstep/model/layers/elementwise/elementwise.h"
#include "lockstep/model/layers/elementwise/fake_quantize.h"
#include "lockstep/model/layers/elementwise/gelu.h"
#include "lockstep/model/layers/elementwise/hard_activations.h"
#include "lockstep/model/layers/elementwise/leaky_relu.h"
#include "lockstep/model/layers/elementwise/relu6.h"
#include "lockstep/model/layers/elementwise/rescaling.h"
#include "lockstep/model/layers/elementwise/sigmoid.h"
#include "lockstep/model/layers/elementwise/silu.h"
#include "lockstep/model/layers/elementwise/smooth_activations.h"
#include "lockstep/model/layers/elementwise/tanh.h"
#include "lockstep/model/layers/embedding/embedding.h"
#include "lockstep/model/layers/embedding/positional_embedding.h"
#include "lockstep/model/layers/group_normalization/group_normalization.h"
#include "lockstep/model/layers/layer_normalization/layer_normalization.h"
#include "lockstep/model/layers/matmul/matmul.h"
#include "lockstep/model/layers/pooling/pooling.h"
#include "lockstep/model/layers/recurrent/recurrent.h"
#include "lockstep/model/layers/sequence_pooling/sequence_pooling.h"
#include "lockstep/model/layers/shape/shape.h"

namespace lockstep::inline v0::model {

/// A layer type of network descriptions (network_json.h).
struct LayerType {
  std::string_view name;  ///< the value of "type"
  bool is_activation;     ///< whether it may be the value of "activation"
  /// Reads the options of the layer from its description. Throws Error (input).
  std::shared_ptr<const Layer> (*read)(JsonObject& object, const DataShape& data);
  bool (*describes)(const Layer& layer);  ///< whether the layer is of this type
  /// Writes the options of the layer, which is of this type, as `read` reads them.
  void (*write)(const Layer& layer, nlohmann::json& object);
};

/// L::read, or the only value of a layer without options.
template <typename L>
std::shared_ptr<const Layer> read_layer(JsonObject& object, const DataShape& data) {
  if constexpr (requires { L::read(object, data); })
    return L::read(object, data);
  else
    return std::make_shared<const L>();
}

/// Whether `layer` is an L.
template <typename L>
bool is_layer(const Layer& layer) {
  return dynamic_cast<const L*>(&layer) != nullptr;
}

/// Writes the options of `layer`, which is an L, with L::write, if it has options.
template <typename L>
void write_layer(const Layer& layer, nlohmann::json& object) {
  const auto& own = dynamic_cast<const L&>(layer);
  if constexpr (requires { own.write(object); }) own.write(object);
}

/// The entry of the class L in kLayers.
template <typename L>
struct Registration {
  std::string_view name;       ///< LayerType::name
  bool is_activation = false;  ///< LayerType::is_activation
};

/// All layers, in the order in which messages list them.
inline constexpr std::tuple kLayers{
    Registration<Conv2D>{"conv2d"},
    Registration<Conv1D>{"conv1d"},
    Registration<DepthwiseConv2D>{"depthwise_conv2d"},
    Registration<Conv2DTranspose>{"conv2d_transpose"},
    Registration<Dense>{"dense"},
    Registration<BatchNormalization>{"batch_normalization"},
    Registration<LayerNormalization>{"layer_normalization"},
    Registration<RMSNormalization>{"rms_normalization"},
    Registration<GroupNormalization>{"group_normalization"},
    Registration<Scale>{"scale"},
    Registration<ReLU>{.name = "relu", .is_activation = true},
    Registration<ReLU6>{.name = "relu6", .is_activation = true},
    Registration<LeakyReLU>{.name = "leaky_relu", .is_activation = true},
    Registration<ELU>{.name = "elu", .is_activation = true},
    Registration<SELU>{.name = "selu", .is_activation = true},
    Registration<GELU>{.name = "gelu", .is_activation = true},
    Registration<SiLU>{.name = "silu", .is_activation = true},
    Registration<Mish>{.name = "mish", .is_activation = true},
    Registration<HardSwish>{.name = "hard_swish", .is_activation = true},
    Registration<HardSigmoid>{.name = "hard_sigmoid", .is_activation = true},
    Registration<HardTanh>{.name = "hard_tanh", .is_activation = true},
    Registration<Softplus>{.name = "softplus", .is_activation = true},
    Registration<Softsign>{.name = "softsign", .is_activation = true},
    Registration<Sigmoid>{.name = "sigmoid", .is_activation = true},
    Registration<Softmax>{.name = "softmax", .is_activation = true},
    Registration<Tanh>{.name = "tanh", .is_activation = true},
    Registration<Rescaling>{"rescaling"},
    Registration<FakeQuantize>{"fake_quantize"},
    Registration<Embedding>{"embedding"},
    Registration<Attention>{"attention"},
    Registration<AdditiveAttention>{"additive_attention"},
    Registration<PositionalEmbedding>{"positional_embedding"},
    Registration<TiedDense>{"tied_dense"},
    Registration<LSTM>{"lstm"},
    Registration<GRU>{"gru"},
    Registration<SimpleRNN>{"simple_rnn"},
    Registration<Dropout>{"dropout"},
    Registration<Flatten>{"flatten"},
    Registration<Reshape>{"reshape"},
    Registration<Permute>{"permute"},
    Registration<ZeroPadding2D>{"zero_padding2d"},
    Registration<Cropping1D>{"cropping1d"},
    Registration<Concatenate>{"concatenate"},
    Registration<Multiply>{"multiply"},
    Registration<Add>{"add"},
    Registration<MatMul>{"matmul"},
    Registration<MaxPool2D>{"max_pool2d"},
    Registration<AveragePool2D>{"average_pool2d"},
    Registration<UpSampling2D>{"up_sampling2d"},
    Registration<GlobalMaxPooling2D>{"global_max_pooling2d"},
    Registration<GlobalAveragePooling2D>{"global_average_pooling2d"},
    Registration<GlobalAveragePooling1D>{"global_average_pooling1d"},
};

/// The types of kLayers, in its order.
inline constexpr auto kLayerTypes = std::apply(
    []<typename... L>(const Registration<L>&... entries) {
      return std::array{LayerType{entries.name, entries.is_activation, read_layer<L>, is_layer<L>,
                                  write_layer<L>}...};
    },
    kLayers);

/// The type of `layer`; null for user-defined layers.
inline const LayerType* find_type(const Layer& layer) {
  const auto* const type = std::ranges::find_if(
      kLayerTypes, [&](const LayerType& known) { return known.describes(layer); });
  return type == kLayerTypes.end() ? nullptr : type;
}

/// Calls visit(function) with the function of `layer`, which is in kLayers.
template <typename Visit>
void visit_function(const PointwiseLayer& layer, const Visit& visit) {
  const auto visit_if_same = [&]<typename L>(const Registration<L>&) {
    if constexpr (std::derived_from<L, PointwiseLayer>) {
      const auto* const own = dynamic_cast<const L*>(&layer);
      if (own != nullptr) visit(own->function());
      return own != nullptr;
    } else {
      return false;
    }
  };
  const bool is_registered =
      std::apply([&](const auto&... entries) { return (visit_if_same(entries) || ...); }, kLayers);
  LOCKSTEP_CHECK(is_registered);
}

}  // namespace lockstep::inline v0::model
