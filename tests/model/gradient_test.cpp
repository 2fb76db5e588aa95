// Gradients of whole networks against differences: what single layers cannot show, such as reused
// memory and accumulated gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/device/buffer.h"
#include "lockstep/model/compiled/plan.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

// Differences are wrong if a ReLU changes sign within the step; with this seed none does.
constexpr GradientCheck kWithKinks{.samples = 4, .seed = 2, .step = 2e-3f, .tolerance = 2e-2};

TEST(Gradients, ChainWithDropout) {
  Network network({10});
  network.add(Dense({.units = 8}));
  network.add(ReLU());
  network.add(Dropout({.rate = 0.4f}));
  network.add(Dense({.units = 8}));
  network.add(Dropout({.rate = 0.2f}));
  network.add(Dense({.units = 3}));
  expect_gradients_match_differences(network, kWithKinks);
}

TEST(Gradients, ResidualBlock) {
  Network network({5, 5, 3});
  const NodeId stem = network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  network.add(BatchNormalization());
  const NodeId input = network.add(ReLU());
  network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  const NodeId residual = network.add(BatchNormalization());
  network.add(Add(), {residual, input});
  network.add(ReLU());
  network.add(GlobalAveragePooling2D());
  network.add(Dense({.units = 3}));
  EXPECT_EQ(stem, 0);
  expect_gradients_match_differences(network, kWithKinks);
}

// The convolutions before a normalization have no bias: it would subtract the bias, so that the
// gradient is 0 and the difference of losses is rounding noise.
TEST(Gradients, BlockWithAProjection) {
  Network network({6, 6, 3});
  const NodeId input = network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  network.add(Conv2D(
      {.filters = 6, .kernel = 3, .strides = 2, .padding = Padding::symmetric, .use_bias = false}));
  const NodeId residual = network.add(BatchNormalization());
  network.add(Conv2D({.filters = 6,
                      .kernel = 1,
                      .strides = 2,
                      .padding = Padding::symmetric,
                      .use_bias = false}),
              {input});
  const NodeId projection = network.add(BatchNormalization());
  network.add(Add(), {residual, projection});
  network.add(Flatten());
  network.add(Dense({.units = 3}));
  expect_gradients_match_differences(network, {.samples = 4});
}

TEST(Gradients, OutputWithManyReaders) {
  Network network({6});
  const NodeId shared = network.add(Dense({.units = 6}));
  const NodeId cut = network.add(ReLU(), {shared});
  const NodeId flat = network.add(Flatten(), {shared});
  const NodeId dense = network.add(Dense({.units = 6}), {shared});
  const NodeId dropped = network.add(Dropout({.rate = 0.5f}), {shared});
  const NodeId sum = network.add(Add(), {shared, cut, flat, dense, dropped});
  network.add(Add(), {sum, sum, shared});
  expect_gradients_match_differences(network, kWithKinks);
}

TEST(Gradients, TwoReLUsOnOneSum) {
  Network network({6});
  const NodeId first = network.add(Dense({.units = 6}));
  const NodeId sum = network.add(Add(), {first, kInput});
  const NodeId one = network.add(ReLU(), {sum});
  const NodeId two = network.add(ReLU(), {sum});
  network.add(Add(), {one, two});
  network.add(ReLU());
  network.add(ReLU());
  expect_gradients_match_differences(network, kWithKinks);
}

TEST(Gradients, ConsecutiveReshapes) {
  Network network({2, 2, 3});
  network.add(Shift());
  const NodeId flat = network.add(Flatten());
  network.add(Flatten());
  network.add(Dropout({.rate = 0}));
  network.add(Add(), {network.last(), flat});
  network.add(Dense({.units = 2}));
  expect_gradients_match_differences(network);
}

TEST(Gradients, LayersAfterPartsWithoutParameters) {
  Network network({6, 6, 2});
  network.add(MaxPool2D());
  const NodeId pooled = network.add(ReLU());
  network.add(Conv2D({.filters = 2, .kernel = 1}));
  network.add(Add(), {network.last(), pooled});
  network.add(Softmax());
  expect_gradients_match_differences(network, {.step = 1e-2f, .floor = 0.02});
}

TEST(Gradients, PoolingBetweenReLUs) {
  Network network({8, 8, 2});
  network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  network.add(ReLU());
  network.add(MaxPool2D());
  network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  network.add(ReLU());
  network.add(AveragePool2D());
  network.add(Flatten());
  network.add(Dense({.units = 3}));
  expect_gradients_match_differences(network, {.samples = 2, .step = 1e-3f, .tolerance = 2e-2});
}

// A plan of a network with several outputs. The loss is the sum of their products with fixed
// factors.
class AllOutputs {
 public:
  AllOutputs(const Network& network, const BatchView& batch)
      : network_(network),
        batch_(batch),
        backend_(make_backend(device::Device{})),
        parameters_(numbers(network.parameters().flat_size(), 1)),
        gradients_(parameters_.size()),
        plan_(network_, *backend_, batch.samples, true,
              {parameters_, std::span(parameters_), std::span<float>()}),
        arena_(allocator_.allocate(plan_.arena_bytes())) {
    plan_.bind(static_cast<std::byte*>(arena_.data()));
  }

  double loss() {
    plan_.load(batch_, false);
    plan_.forward(kPass);
    double sum = 0;
    for (std::size_t k = 0; k < network_.outputs().size(); ++k) {
      const auto values = plan_.output(k).as<float>();
      const std::vector<float> factors = numbers(values.size(), k + 10);
      for (std::size_t i = 0; i < values.size(); ++i)
        sum += static_cast<double>(values[i]) * static_cast<double>(factors[i]);
    }
    return sum;
  }
  const std::vector<float>& gradients() {
    loss();
    for (std::size_t k = 0; k < network_.outputs().size(); ++k) {
      const auto gradient = plan_.output_gradient(k).as<float>();
      std::ranges::copy(numbers(gradient.size(), k + 10), gradient.begin());
    }
    plan_.backward(kPass, gradients_, {});
    return gradients_;
  }
  std::vector<float>& parameters() { return parameters_; }

 private:
  static constexpr PassContext kPass{.training = true};

  const Network& network_;
  BatchView batch_;
  std::unique_ptr<Backend> backend_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  Plan plan_;
  device::HostAllocator allocator_;
  device::Buffer arena_;
};

// Outputs that others read: in place, under another shape, and with the gradient of the loss.
TEST(Gradients, SeveralInputsAndOutputs) {
  Network network({{.name = "image", .shape = {4, 4, 1}}, {.name = "table", .shape = {3}}});
  const NodeId convolution =
      network.add(Conv2D({.filters = 2, .kernel = 3, .padding = Padding::same}));
  network.add(ReLU());
  network.add(MaxPool2D());
  network.add(Flatten());
  const NodeId picture = network.add(Dense({.units = 4}));
  const NodeId columns = network.add(Dense({.units = 4}), {network.input("table")});
  const NodeId cut = network.add(ReLU());
  const NodeId sum = network.add(Add(), {picture, cut, columns});
  const NodeId flat = network.add(Flatten(), {sum});
  network.output("end", network.add(Dense({.units = 2}), {flat}));
  for (const auto& [name, node] : {std::pair("image", convolution), std::pair("columns", columns),
                                   std::pair("sum", sum), std::pair("flat", flat)})
    network.output(name, node);

  const std::vector<float> image = numbers(2 * 16, 5);
  const std::vector<float> table = numbers(2 * 3, 6);
  const std::vector<InputView> inputs = {{.features = image}, {.features = table}};
  AllOutputs all(network, {.samples = 2, .inputs = inputs});
  const std::vector<float> gradients = all.gradients();
  constexpr float kStep = 5e-4f;
  for (const ParameterInfo& entry : network.parameters().entries())
    for (std::size_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      float& parameter = all.parameters()[i];
      const float kept = parameter;
      const auto loss_at = [&](float value) {
        parameter = value;
        return all.loss();
      };
      const float up = kept + kStep;
      const float down = kept - kStep;
      const double difference = (loss_at(up) - loss_at(down)) / static_cast<double>(up - down);
      parameter = kept;
      EXPECT_NEAR(static_cast<double>(gradients[i]), difference, 1e-2)
          << entry.name << " element " << i - entry.offset;
    }
}

}  // namespace
}  // namespace lockstep::inline v0::model
