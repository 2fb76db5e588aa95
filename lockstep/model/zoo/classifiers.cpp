#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::zoo {

using model::Network;
using model::Shape;

namespace {

void flatten_if_needed(Network& network) {
  if (network.input_shape().size() > 1) network.add(model::Flatten());
}

}  // namespace

Network linear(Shape input, std::int64_t classes) {
  Network network(std::move(input), "linear");
  flatten_if_needed(network);
  network.add(model::Dense({.units = classes}));
  return network;
}

Network mlp(Shape input, std::int64_t classes, const std::vector<std::int64_t>& hidden) {
  const bool is_plain = hidden.empty() || hidden == std::vector<std::int64_t>{128, 128};
  Network network(std::move(input),
                  is_plain ? "mlp" : fmt::format("mlp:{}", fmt::join(hidden, ",")));
  flatten_if_needed(network);
  for (const std::int64_t units : hidden) {
    network.add(model::Dense({.units = units}));
    network.add(model::ReLU());
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

}  // namespace lockstep::zoo
