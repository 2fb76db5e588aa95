#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::zoo {

using model::Network;
using model::NodeId;

namespace {

bool is_photograph(const DataInput& input) {
  return input.input.type == ElementType::float32 && input.input.shape.size() == 3;
}

bool is_sentence(const DataInput& input) {
  return input.input.type == ElementType::int32 && input.input.shape.size() == 1 &&
         input.categories > 0;
}

[[noreturn]] void refuse_caption_inputs(std::span<const DataInput> inputs) {
  std::string actual;
  for (const DataInput& input : inputs)
    actual += fmt::format("{}{} {}", actual.empty() ? "" : ", ", input.input.name,
                          model::to_string(input.input.shape));
  throw Error(ErrorCategory::input, "caption",
              "expected an image [height, width, channels], and tokens of a vocabulary, one int32 "
              "for each position of its caption",
              fmt::format("got {}", actual));
}

std::string caption_name(const CaptionOptions& options) {
  std::string name = fmt::format("caption:{}", options.width);
  if (options.dropout > 0) name += fmt::format(",dropout={}", options.dropout);
  if (!options.cnn.empty()) name += fmt::format(",cnn={}", quote_spec(options.cnn));
  return name;
}

}  // namespace

Network caption(std::span<const DataInput> inputs, const CaptionOptions& options) {
  const auto image = std::ranges::find_if(inputs, is_photograph);
  const auto tokens = std::ranges::find_if(inputs, is_sentence);
  if (inputs.size() != 2 || image == inputs.end() || tokens == inputs.end())
    refuse_caption_inputs(inputs);
  if (options.width < 1)
    throw Error(ErrorCategory::input, "caption", "expected a width of at least 1",
                fmt::format("got {}", options.width));
  const std::vector<model::NetworkInput> read = {inputs[0].input, inputs[1].input};
  Network network(read, caption_name(options));
  const auto dropout = [&](NodeId x) {
    if (!(options.dropout > 0)) return x;
    return network.add(model::Dropout({.rate = options.dropout}), {x});
  };

  const model::Shape& shape = image->input.shape;
  const std::string by_size = stem_for(shape) == Stem::cifar ? "cnn" : "resnet18";
  const Network features = features_of(make(options.cnn.empty() ? by_size : options.cnn, shape, 1));
  NodeId x = network.input(image->input.name);
  for (const model::Node& node : features.nodes()) {
    // Its layers come first, so they keep their ids.
    std::vector<NodeId> inputs_of_node = node.inputs;
    std::ranges::replace(inputs_of_node, model::kInput, network.input(image->input.name));
    x = network.add_node(node.layer, std::move(inputs_of_node), node.name);
  }
  x = network.add(model::Dense({.units = options.width}), {x}, "encoder.linear");
  x = network.add(model::Reshape({.shape = {1, options.width}}), {x});

  const NodeId words =
      network.add(model::Embedding({.vocabulary = tokens->categories, .dimension = options.width}),
                  {network.input(tokens->input.name)}, "decoder.embed");
  x = dropout(network.add(model::Concatenate({.axis = 1}), {x, words}));
  x = network.add(model::LSTM({.units = options.width, .return_sequences = true}), {x},
                  "decoder.lstm");
  x = dropout(network.add(model::Cropping1D({.before = 1, .after = 0}), {x}));
  network.add(model::Dense({.units = tokens->categories}), {x}, "decoder.linear");
  return network;
}

}  // namespace lockstep::inline v0::zoo
