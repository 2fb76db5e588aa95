#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::zoo {

using model::Network;
using model::NodeId;
using model::Shape;

namespace {

void flatten_if_needed(Network& network) {
  if (network.input_shape().size() > 1) network.add(model::Flatten());
}

constexpr std::int64_t kFirstFilters = 24;  // twice the number of values in a 2x2x3 patch, as for
                                            // whitening filters and their negatives

void convolve(Network& network, std::int64_t filters) {
  network.add(model::Conv2D({.filters = filters,
                             .kernel = 3,
                             .padding = model::Padding::symmetric,
                             .use_bias = false,
                             .initializer = model::Initializer::Kind::he_normal}));
}

void normalize_and_activate(Network& network) {
  network.add(model::BatchNormalization({.momentum = 0.6f, .epsilon = 1e-5f}));
  network.add(model::ReLU());
}

// The inputs of lstm().
void check_reads_sequence(std::span<const DataInput> inputs) {
  const auto is_int32 = [](const DataInput& one) { return one.input.type == ElementType::int32; };
  bool is_sequence = !inputs.empty() && inputs.size() <= 2;
  if (is_sequence) {
    const Shape& shape = inputs.front().input.shape;
    is_sequence = is_int32(inputs.front()) ? shape.size() == 1 && inputs.front().categories > 0
                                           : shape.size() > 1;
  }
  if (is_sequence && inputs.size() == 2)
    is_sequence =
        is_int32(inputs[1]) && inputs[1].input.shape == Shape{inputs[0].input.shape.front()};
  if (is_sequence) return;
  std::string actual;
  for (const DataInput& one : inputs) {
    const bool is_unknown = actual.empty() && is_int32(one) && one.categories < 1;
    actual +=
        fmt::format("{}{} {}{}", actual.empty() ? "" : ", ", one.input.name,
                    model::to_string(one.input.shape), is_unknown ? " of unknown categories" : "");
  }
  throw Error(ErrorCategory::input, "lstm",
              "expected floats [positions, features], or numbers [positions] of categories, and "
              "optionally the segments of the same positions",
              fmt::format("got {}", actual));
}

}  // namespace

Network linear(Shape input, std::int64_t classes) {
  Network network(std::move(input), "linear");
  flatten_if_needed(network);
  network.add(model::Dense({.units = classes}));
  return network;
}

Network mlp(Shape input, std::int64_t classes, const std::vector<std::int64_t>& hidden,
            float dropout) {
  const bool is_plain = hidden.empty() || hidden == std::vector<std::int64_t>{128, 128};
  std::string name = is_plain ? "mlp" : fmt::format("mlp:{}", fmt::join(hidden, ","));
  if (dropout > 0) name += fmt::format("{}dropout={}", is_plain ? ':' : ',', dropout);
  Network network(std::move(input), std::move(name));
  flatten_if_needed(network);
  for (const std::int64_t units : hidden) {
    network.add(model::Dense({.units = units}));
    network.add(model::ReLU());
    if (dropout > 0) network.add(model::Dropout({.rate = dropout}));
  }
  network.add(model::Dense({.units = classes}));
  return network;
}

Network cnn(Shape input, std::int64_t classes) {
  Network network(std::move(input), "cnn");
  for (const std::int64_t filters : {32, 64}) {
    network.add(model::Conv2D({.filters = filters, .kernel = 3}));
    network.add(model::ReLU());
    network.add(model::MaxPool2D({.pool = 2}));
  }
  network.add(model::Flatten());
  network.add(model::Dense({.units = 128}));
  network.add(model::ReLU());
  network.add(model::Dense({.units = classes}));
  return network;
}

Network fast_cifar(Shape input, std::int64_t classes, const FastCifarOptions& options) {
  Network network(std::move(input), "fast_cifar");
  network.add(model::Conv2D(
      {.filters = kFirstFilters, .kernel = 2, .initializer = model::Initializer::Kind::he_normal}));
  network.add(model::ReLU());
  for (const std::int64_t filters : {options.width, 4 * options.width, 4 * options.width}) {
    convolve(network, filters);
    network.add(model::MaxPool2D({.pool = 2}));
    normalize_and_activate(network);
    convolve(network, filters);
    normalize_and_activate(network);
  }
  const Shape& last = network.output_shape();
  network.add(model::MaxPool2D({.pool = {last[0], last[1]}}));
  network.add(model::Flatten());
  network.add(model::Dense({.units = classes}));
  return network;
}

Network lstm(std::span<const DataInput> inputs, std::int64_t classes, const LstmOptions& options) {
  const LstmOptions plain;
  std::string name = "lstm";
  if (options.layers != plain.layers || options.units != plain.units ||
      options.embedding != plain.embedding)
    name += fmt::format(":{}x{}", options.layers, options.units);
  if (options.embedding != plain.embedding) name += fmt::format(",embedding={}", options.embedding);
  if (options.return_sequences) name += name == "lstm" ? ":return_sequences" : ",return_sequences";

  check_reads_sequence(inputs);
  const auto& [first, categories] = inputs.front();
  std::vector<model::NetworkInput> read;
  for (const DataInput& input : inputs) read.push_back(input.input);
  Network network(read, std::move(name));
  const std::int64_t positions = first.shape.front();
  NodeId x = model::kInput;
  if (first.type == ElementType::int32)
    x = network.add(model::Embedding({.vocabulary = categories, .dimension = options.embedding}));
  else if (first.shape.size() > 2)
    x = network.add(
        model::Reshape({.shape = {positions, model::element_count(first.shape) / positions}}));
  for (std::int64_t layer = 1; layer <= options.layers; ++layer) {
    std::vector<NodeId> layer_inputs = {x};
    if (inputs.size() == 2) layer_inputs.push_back(network.input(inputs[1].input.name));
    x = network.add(
        model::LSTM({.units = options.units,
                     .return_sequences = options.return_sequences || layer < options.layers,
                     .segments = inputs.size() == 2}),
        std::move(layer_inputs));
  }
  network.add(model::Dense({.units = classes}), {x});
  return network;
}

Network wide_deep(std::span<const DataInput> inputs, std::int64_t classes,
                  const WideDeepOptions& options) {
  const WideDeepOptions plain;
  const bool is_plain = options.hidden == plain.hidden && options.embedding == plain.embedding;
  std::vector<model::NetworkInput> read;
  for (const DataInput& input : inputs) read.push_back(input.input);
  Network network(read, is_plain ? "wide_deep"
                                 : fmt::format("wide_deep:{},embedding={}",
                                               fmt::join(options.hidden, "x"), options.embedding));
  std::vector<NodeId> logits;  // terms of the linear model
  std::vector<NodeId> deep;
  for (const auto& [input, categories] : inputs) {
    const NodeId id = network.input(input.name);
    if (input.type == ElementType::float32) {
      deep.push_back(input.shape.size() > 1 ? network.add(model::Flatten(), {id}) : id);
      logits.push_back(network.add(model::Dense({.units = classes, .use_bias = false}),
                                   {deep.back()}, "wide_" + input.name));
    } else if (input.shape.empty() && categories > 0) {
      logits.push_back(
          network.add(model::Embedding({.vocabulary = categories, .dimension = classes}), {id},
                      "wide_" + input.name));
      deep.push_back(
          network.add(model::Embedding({.vocabulary = categories, .dimension = options.embedding}),
                      {id}, "embedding_" + input.name));
    } else {
      throw Error(ErrorCategory::input, "wide_deep",
                  "expected floats, or one number of a category per sample",
                  fmt::format("got {} {}{}", input.name, model::to_string(input.shape),
                              categories > 0 ? "" : " of unknown categories"));
    }
  }
  NodeId end = deep.size() == 1 ? deep.front() : network.add(model::Concatenate(), std::move(deep));
  for (const std::int64_t units : options.hidden) {
    network.add(model::Dense({.units = units}), {end});
    end = network.add(model::ReLU());
  }
  logits.push_back(network.add(model::Dense({.units = classes}), {end}));
  network.add(model::Add(), std::move(logits));
  return network;
}

}  // namespace lockstep::inline v0::zoo
