// Both interfaces of cuDNN compute convolutions like the CPU: unaligned channels, uneven zeros,
// groups. On a real GPU.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/sides.h"

namespace lockstep::inline v0::model {
namespace {

struct OddCase {
  std::string name;
  Shape input;  // input shape of the convolution
  Conv2D::Options options;

  friend std::ostream& operator<<(std::ostream& stream, const OddCase& one) {
    return stream << one.name;
  }
};

const OddCase kOddCases[] = {
    {"three_to_six", {7, 5, 3}, {.filters = 6, .kernel = 3}},
    {"uneven_zeros",
     {7, 5, 4},
     {.filters = 5, .kernel = 4, .strides = 2, .padding = Padding::same}},
    {"groups",
     {7, 5, 4},
     {.filters = 6, .kernel = 3, .strides = 2, .padding = Padding::symmetric, .groups = 2}},
    {"zeros_behind",
     {8, 7, 6},
     {.filters = 5, .kernel = 3, .strides = 2, .padding = Padding::same}},
    {"one_to_thirty_two", {12, 12, 1}, {.filters = 32, .kernel = 3}},
    {"residual_block",
     {14, 14, 64},
     {.filters = 128, .kernel = 3, .padding = Padding::symmetric, .use_bias = false}},
};

struct ChoiceCase {
  std::string name;
  Convolutions convolutions;
  bool deterministic;
};

const ChoiceCase kChoices[] = {{"graph", Convolutions::graph, false},
                               {"deterministic_graph", Convolutions::graph, true},
                               {"legacy", Convolutions::legacy, false},
                               {"deterministic_legacy", Convolutions::legacy, true},
                               {"either", Convolutions::automatic, false},
                               {"deterministic", Convolutions::automatic, true}};

// The convolution twice, with one input: one gradient of it is written, the other is added.
std::shared_ptr<const Network> network_of(const OddCase& one) {
  auto network = std::make_shared<Network>(one.input);
  const NodeId input = network->add(Conv2D({.filters = one.input[2], .kernel = 1}));
  const NodeId first = network->add(Conv2D(one.options), {input});
  const NodeId second = network->add(Conv2D(one.options), {input});
  network->add(Add(), {first, second});
  network->add(Flatten());
  network->add(Dense({.units = 5}));
  return network;
}

class ConvolutionOnGpu : public testing::TestWithParam<std::tuple<OddCase, Precision, ChoiceCase>> {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }
};

TEST_P(ConvolutionOnGpu, MatchesTheCpu) {
  const auto& [one, precision, choice] = GetParam();
  const double tolerance = precision == Precision::float32    ? 1e-4
                           : precision == Precision::bfloat16 ? 0.12
                                                              : 0.03;
  const auto network = network_of(one);
  const Data data(*network, 3);
  Side cpu(device::Device{}, network, {});
  Side gpu(kGpu, network,
           {.precision = precision,
            .deterministic = choice.deterministic,
            .convolutions = choice.convolutions});
  try {
    gpu.model().prepare(3, true);
  } catch (const Error& error) {
    if (choice.convolutions != Convolutions::legacy) throw;
    GTEST_SKIP() << "cuDNN's legacy interface: " << error.what();
  }
  for (int step = 0; step < 2; ++step) {
    const double expected =
        cpu.model().train_batch(data.batch_for(kLoss), data.context(), kLoss).loss_sum;
    const double loss =
        gpu.model().train_batch(data.batch_for(kLoss), data.context(), kLoss).loss_sum;
    EXPECT_NEAR(loss, expected, tolerance * expected);
    EXPECT_LE(error(gpu.gradients(), cpu.gradients()), tolerance) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvolutionOnGpu,
                         testing::Combine(testing::ValuesIn(kOddCases),
                                          testing::Values(Precision::float32, Precision::bfloat16,
                                                          Precision::float16),
                                          testing::ValuesIn(kChoices)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" +
                                  to_string(std::get<1>(test.param)) + "_" +
                                  std::get<2>(test.param).name;
                         });

}  // namespace
}  // namespace lockstep::inline v0::model
