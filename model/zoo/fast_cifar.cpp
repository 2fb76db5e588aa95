#include "model/zoo/fast_cifar.h"

#include "model/layers/layers.h"

namespace lockstep::zoo {
namespace {

using model::Network;
using model::Shape;

constexpr std::int64_t kFirstFilters =
    24;  // twice the values of a patch of 2x2x3: as many as whitening and its negative

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

}  // namespace

Network fast_cifar(Shape input, std::int64_t classes, const FastCifarOptions& options) {
  Network network(std::move(input), "fast_cifar");
  network.add(
      model::Conv2D({.filters = kFirstFilters, .kernel = 2, .initializer = model::Initializer::Kind::he_normal}));
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

}  // namespace lockstep::zoo
