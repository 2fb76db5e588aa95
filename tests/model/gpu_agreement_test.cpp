// A GPU computes what the CPU does, layer by layer, up to rounding. Runs on gpu:0, pretended or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "device/gpu.h"
#include "device/host_view.h"
#include "model/backend.h"
#include "model/compiled_model.h"
#include "model/layers/layers.h"
#include "model/zoo/zoo.h"
#include "tests/model/support/numbers.h"

namespace lockstep::model {
namespace {

using device::Device;
using device::DeviceKind;
using device::HostView;

constexpr Device kGpu{DeviceKind::gpu, 0};

using Values = std::vector<float>;

// One side of the comparison: a model with given numbers, and what a pass on a batch makes of them.
class Side {
 public:
  Side(Device device, std::shared_ptr<const Network> network, const ComputeOptions& options)
      : allocator_(device.kind == DeviceKind::gpu ? device::make_gpu_allocator(device.index)
                                                  : std::make_unique<device::HostAllocator>()),
        model_(std::move(network), device, *allocator_, options) {
    fill(model_.parameter_table(), model_.parameters(), 0);
    fill(model_.buffer_table(), model_.buffers(), 1.25f);
    model_.parameters_changed();
  }

  CompiledModel& model() { return model_; }
  Values values(std::span<float> memory) {
    HostView view(memory, model_.backend().stream());
    return {view.values().begin(), view.values().end()};
  }
  Values gradients() { return values(model_.gradients()); }
  Values buffers() { return values(model_.buffers()); }

 private:
  void fill(const ParameterTable& table, std::span<float> flat, float shift) {
    HostView view(flat, model_.backend().stream());
    for (const ParameterInfo& entry : table.entries()) {
      const Values random = numbers(entry.count, 100 + entry.offset);
      std::ranges::transform(random, ParameterTable::slice(view.values(), entry).begin(),
                             [&](float x) { return 0.5f * x + shift; });
    }
    view.write_back(model_.backend().stream());
  }

  std::unique_ptr<device::Allocator> allocator_;
  CompiledModel model_;
};

struct Case {
  std::string name;
  Network (*make)();
  bool has_classes = true;
};

Network image_network(Shape shape = {7, 5, 3}) { return Network(std::move(shape)); }

Network ended(Network network) {
  if (network.output_shape().size() > 1) network.add(Flatten());
  network.add(Dense({.units = 5}));
  return network;
}

template <typename L>
Network of_layer(L layer, Shape shape = {7, 5, 3}) {
  Network network = image_network(std::move(shape));
  network.add(Conv2D({.filters = 4, .kernel = 1}));  // so that the layer has a gradient to give
  network.add(std::move(layer));
  return ended(std::move(network));
}

const Case kCases[] = {
    {"dense", [] { return ended(Network({9})); }},
    {"dense_relu",
     [] {
       Network network({9});
       network.add(Dense({.units = 7}));
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"dense_without_bias",
     [] {
       Network network({6});
       network.add(Dense({.units = 8, .use_bias = false}));
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"convolution", [] { return of_layer(Conv2D({.filters = 6, .kernel = 3})); }},
    {"convolution_same", [] { return of_layer(Conv2D({.filters = 5, .kernel = 3, .padding = Padding::same})); }},
    {"convolution_with_uneven_zeros",
     [] { return of_layer(Conv2D({.filters = 5, .kernel = 4, .strides = 2, .padding = Padding::same})); }},
    {"convolution_in_groups",
     [] {
       return of_layer(Conv2D({.filters = 6, .kernel = 3, .strides = 2, .padding = Padding::symmetric, .groups = 2}));
     }},
    {"convolution_relu",
     [] {
       Network network = image_network();
       network.add(Conv2D({.filters = 8, .kernel = 3}));
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"convolution_without_bias_relu",
     [] {
       Network network = image_network();
       network.add(Conv2D({.filters = 8, .kernel = 3, .use_bias = false}));
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"max_pooling", [] { return of_layer(MaxPool2D({.pool = 2})); }},
    {"max_pooling_that_overlaps",
     [] { return of_layer(MaxPool2D({.pool = 3, .strides = 2, .padding = Padding::symmetric})); }},
    {"average_pooling", [] { return of_layer(AveragePool2D({.pool = 2, .strides = 1, .padding = Padding::same})); }},
    {"global_average_pooling", [] { return of_layer(GlobalAveragePooling2D()); }},
    {"relu", [] { return of_layer(ReLU()); }},
    {"softmax", [] { return of_layer(Softmax()); }},
    {"dropout", [] { return of_layer(Dropout({.rate = 0.3f})); }},
    {"batch_normalization", [] { return of_layer(BatchNormalization()); }},
    {"batch_normalization_relu",
     [] {
       Network network = image_network({6, 6, 3});
       network.add(Conv2D({.filters = 16, .kernel = 3, .use_bias = false}));
       network.add(BatchNormalization());
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"addition",
     [] {
       Network network = image_network();
       const NodeId first = network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
       const NodeId second = network.add(Conv2D({.filters = 4, .kernel = 1}), {kInput});
       network.add(Add(), {first, second, first});
       return ended(std::move(network));
     }},
    {"addition_relu",
     [] {
       Network network = image_network();
       const NodeId first = network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
       network.add(BatchNormalization());
       network.add(Add(), {network.last(), first});
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"cnn",
     [] {
       return zoo::cnn({12, 12, 1}, 5);
     }},
    {"resnet18",
     [] {
       return zoo::resnet18({16, 16, 3}, 5, {.width = 4});
     }},
    {"resnet50_imagenet",
     [] {
       return zoo::resnet50({32, 32, 3}, 5, {.width = 2, .stem = zoo::Stem::imagenet});
     }},
};

double norm(const Values& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

// Distance over norm.
double error(const Values& values, const Values& reference) {
  Values difference = values;
  for (std::size_t i = 0; i < reference.size(); ++i) difference[i] -= reference[i];
  return norm(difference) / std::max(norm(reference), 1e-6);
}

using Setting = std::tuple<Case, std::int64_t, Precision>;

class GpuAgreement : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }

  static const Case& test_case() { return std::get<0>(GetParam()); }
  static std::int64_t samples() { return std::get<1>(GetParam()); }
  static ComputeOptions options() { return {.precision = std::get<2>(GetParam()), .deterministic = true}; }
  // Rounding of one product, a few dozen of which follow each other in the deepest of these networks.
  static double tolerance() {
    switch (options().precision) {
      case Precision::float32:
        return 1e-4;
      case Precision::bfloat16:
        return 0.12;
      case Precision::float16:
        break;
    }
    return 0.03;
  }

  std::shared_ptr<const Network> network_ = std::make_shared<const Network>(test_case().make());
  Values features_ = numbers(static_cast<std::size_t>(samples() * element_count(network_->input_shape())), 1);
  std::vector<std::int32_t> labels_ = labels(static_cast<std::size_t>(samples()), 5, 2);
  Values targets_ = numbers(static_cast<std::size_t>(samples() * 5), 3);

  BatchView batch() const {
    return {.samples = samples(), .features = features_, .targets = {.labels = labels_, .values = targets_}};
  }
  StepContext context() const { return {.seed = 7, .step = 3, .first_sample = 11, .global_samples = samples() + 2}; }
};

TEST_P(GpuAgreement, TrainsAsTheCpuDoes) {
  Side cpu(Device{}, network_, {});
  Side gpu(kGpu, network_, options());
  for (const Loss& loss : {Loss(SparseCategoricalCrossentropy{.label_smoothing = 0.1f}), Loss(MeanSquaredError{})}) {
    Targets wanted = batch().targets;
    if (std::holds_alternative<MeanSquaredError>(loss))
      wanted.labels = {};
    else
      wanted.values = {};
    const BatchView view{.samples = samples(), .features = features_, .targets = wanted};
    const MetricSums expected = cpu.model().train_batch(view, context(), loss);
    const MetricSums sums = gpu.model().train_batch(view, context(), loss);
    EXPECT_EQ(sums.samples, samples());
    EXPECT_EQ(sums.has_accuracy, expected.has_accuracy);
    EXPECT_NEAR(sums.loss, expected.loss, tolerance() * expected.loss) << to_string(loss);
    if (options().precision == Precision::float32) {
      EXPECT_EQ(sums.correct, expected.correct);
      EXPECT_EQ(sums.correct_top5, expected.correct_top5);
    }
    EXPECT_LE(error(gpu.gradients(), cpu.gradients()), tolerance()) << to_string(loss);
    if (!cpu.buffers().empty()) {
      EXPECT_LE(error(gpu.buffers(), cpu.buffers()), tolerance()) << to_string(loss);
    }
  }
}

TEST_P(GpuAgreement, PredictsAndEvaluatesAsTheCpuDoes) {
  Side cpu(Device{}, network_, {});
  Side gpu(kGpu, network_, options());
  const auto reference = cpu.model().predict_batch(samples(), features_);
  const auto outputs = gpu.model().predict_batch(samples(), features_);
  EXPECT_LE(error({outputs.begin(), outputs.end()}, {reference.begin(), reference.end()}), tolerance());
  const Loss loss = SparseCategoricalCrossentropy{};
  EXPECT_NEAR(gpu.model().evaluate_batch(batch(), loss).loss, cpu.model().evaluate_batch(batch(), loss).loss,
              tolerance() * std::abs(cpu.model().evaluate_batch(batch(), loss).loss));
}

TEST_P(GpuAgreement, AddsUpMicroBatches) {
  if (samples() < 2) GTEST_SKIP() << "one sample is no two batches";
  if (!network_->buffers().entries().empty()) GTEST_SKIP() << "statistics are of a micro-batch";
  Side gpu(kGpu, network_, options());
  const Loss loss = SparseCategoricalCrossentropy{};
  gpu.model().train_batch(batch(), context(), loss);
  const Values whole = gpu.gradients();
  const auto part = [&](std::int64_t first, std::int64_t count) {
    const auto width = static_cast<std::size_t>(element_count(network_->input_shape()));
    StepContext here = context();
    here.first_sample += first;
    gpu.model().train_batch({.samples = count,
                             .features = std::span(features_).subspan(static_cast<std::size_t>(first) * width,
                                                                      static_cast<std::size_t>(count) * width),
                             .targets = {.labels = std::span(labels_).subspan(static_cast<std::size_t>(first),
                                                                              static_cast<std::size_t>(count)),
                                         .values = {}}},
                            here, loss, first > 0);
  };
  part(0, 1);
  part(1, samples() - 1);
  EXPECT_LE(error(gpu.gradients(), whole), tolerance());
}

TEST_P(GpuAgreement, GivesTheSameBitsTwice) {
  const auto run = [&] {
    Side gpu(kGpu, network_, options());
    gpu.model().train_batch(batch(), context(), SparseCategoricalCrossentropy{});
    return gpu.gradients();
  };
  EXPECT_EQ(run(), run());
}

INSTANTIATE_TEST_SUITE_P(Layers, GpuAgreement,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values(1, 2, 3),
                                          testing::Values(Precision::float32, Precision::bfloat16, Precision::float16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + std::to_string(std::get<1>(test.param)) + "_" +
                                  to_string(std::get<2>(test.param));
                         });

}  // namespace
}  // namespace lockstep::model
