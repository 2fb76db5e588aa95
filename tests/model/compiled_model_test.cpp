#include "lockstep/model/compiled/compiled_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

std::vector<float> copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

// A model of cnn on 16x16 images, its data, and calls on parts of it.
class Cnn {
 public:
  explicit Cnn(std::int64_t samples = 6, const std::vector<std::string>& freeze = {})
      : model_(network(freeze), device::Device{}, allocator_),
        features_(numbers(static_cast<std::size_t>(samples * 512), 1)),
        labels_(labels(static_cast<std::size_t>(samples), 10, 2)) {
    set_thread_budget(1);
    model_.initialize(3);
  }

  CompiledModel& model() { return model_; }
  BatchView part(std::size_t first, std::size_t samples) const {
    return {.samples = static_cast<std::int64_t>(samples),
            .features = std::span(features_).subspan(first * 512, samples * 512),
            .targets = {.labels = std::span(labels_).subspan(first, samples), .values = {}}};
  }
  BatchView all() const { return part(0, labels_.size()); }
  StepContext context(std::size_t first = 0) const {
    return {.first_sample = static_cast<std::int64_t>(first),
            .global_samples = static_cast<std::int64_t>(labels_.size())};
  }
  MetricSums train(std::size_t first, std::size_t samples, bool accumulate = false,
                   const GradientReady& ready = {}) {
    return model_.train_batch(part(first, samples), context(first), SparseCategoricalCrossentropy{},
                              accumulate, ready);
  }

  static inline const Shape kInputShape = {16, 16, 2};

 private:
  static std::shared_ptr<const Network> network(const std::vector<std::string>& freeze) {
    auto network = std::make_shared<Network>(zoo::cnn(kInputShape, 10));
    network->freeze(freeze);
    return network;
  }

  device::HostAllocator allocator_;
  CompiledModel model_;
  std::vector<float> features_;
  std::vector<std::int32_t> labels_;
};

std::vector<std::size_t> counting(std::size_t count) {
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  return numbers;
}

TEST(CompiledModel, ReportsEveryGradientOnceInFlatOrder) {
  Cnn cnn;
  std::vector<std::size_t> heard;
  cnn.train(0, 6, false, [&](std::size_t parameter) { heard.push_back(parameter); });
  EXPECT_THAT(heard, ElementsAreArray(counting(cnn.model().parameter_table().entries().size())));
}

TEST(CompiledModel, AGradientIsCompleteWhenItIsReady) {
  Cnn cnn;
  std::vector<float> when_ready(cnn.model().gradients().size());
  for (const bool accumulate : {false, true}) {
    cnn.train(0, 6, accumulate, [&](std::size_t parameter) {
      const ParameterInfo& entry = cnn.model().parameter_table().entries()[parameter];
      std::ranges::copy(ParameterTable::slice(cnn.model().gradients(), entry),
                        when_ready.begin() + static_cast<std::ptrdiff_t>(entry.offset));
    });
    EXPECT_THAT(cnn.model().gradients(), ElementsAreArray(when_ready))
        << "accumulate: " << accumulate;
  }
}

TEST(CompiledModel, FrozenParametersDoNotChangeOtherGradients) {
  Cnn whole;
  whole.train(0, 4);
  whole.train(4, 2, true);
  const std::vector<std::vector<std::string>> frozen = {
      {"conv2d/*"}, {"dense/*"}, {"dense_1/*", "conv2d_1/*"}, {"conv2d_1/kernel", "*/bias"}};
  for (const std::vector<std::string>& patterns : frozen) {
    Cnn cnn(6, patterns);
    std::vector<std::size_t> heard;
    cnn.train(0, 4);
    cnn.train(4, 2, true, [&](std::size_t parameter) { heard.push_back(parameter); });
    const std::span<const ParameterInfo> trained = cnn.model().trained_table().entries();
    EXPECT_THAT(heard, ElementsAreArray(counting(trained.size())));
    EXPECT_LT(cnn.model().gradients().size(), whole.model().gradients().size());
    for (const ParameterInfo& entry : trained) {
      const ParameterInfo& same = *whole.model().parameter_table().find(entry.name);
      EXPECT_THAT(
          ParameterTable::slice(cnn.model().gradients(), entry),
          Pointwise(FloatNear(1e-6f), ParameterTable::slice(whole.model().gradients(), same)))
          << entry.name << " without " << patterns.front();
    }
  }
}

TEST(CompiledModel, PartsOfABatchAddUpToTheWhole) {
  Cnn cnn(7);
  const MetricSums whole = cnn.train(0, 7);
  const std::vector<float> expected = copy_of(cnn.model().gradients());
  std::vector<float> sum(expected.size());
  MetricSums sums;
  for (const auto& [first, samples] :
       {std::pair<std::size_t, std::size_t>{0, 4}, {4, 2}, {6, 1}, {7, 0}}) {
    sums += cnn.train(first, samples);
    std::ranges::transform(sum, cnn.model().gradients(), sum.begin(), std::plus<>());
  }
  EXPECT_THAT(sum, Pointwise(FloatNear(2e-6f), expected));
  EXPECT_NEAR(sums.loss_sum, whole.loss_sum, 1e-5);
  EXPECT_EQ(sums.samples, 7);
  EXPECT_EQ(sums.correct, whole.correct);
}

TEST(CompiledModel, AccumulatesMicroBatches) {
  Cnn cnn(7);
  cnn.train(0, 7);
  const std::vector<float> expected = copy_of(cnn.model().gradients());
  cnn.train(0, 3);
  std::vector<std::size_t> heard;
  cnn.train(3, 4, true, [&](std::size_t parameter) { heard.push_back(parameter); });
  EXPECT_THAT(cnn.model().gradients(), Pointwise(FloatNear(2e-6f), expected));
  EXPECT_THAT(heard, ElementsAreArray(counting(cnn.model().parameter_table().entries().size())));
}

TEST(CompiledModel, APartWithoutSamplesHasZeroGradients) {
  Cnn cnn;
  cnn.train(0, 6);
  const std::vector<float> before = copy_of(cnn.model().gradients());
  std::vector<std::size_t> heard;
  const MetricSums sums =
      cnn.train(0, 0, true, [&](std::size_t parameter) { heard.push_back(parameter); });
  EXPECT_THAT(cnn.model().gradients(), ElementsAreArray(before)) << "nothing is added";
  EXPECT_THAT(heard, ElementsAreArray(counting(cnn.model().parameter_table().entries().size())));
  EXPECT_EQ(sums.samples, 0);

  heard.clear();
  cnn.train(0, 0, false, [&](std::size_t parameter) { heard.push_back(parameter); });
  EXPECT_THAT(cnn.model().gradients(), Each(0.0f));
  EXPECT_THAT(heard, ElementsAreArray(counting(cnn.model().parameter_table().entries().size())));
}

TEST(CompiledModel, IsBitReproducible) {
  Cnn one;
  Cnn two;
  set_thread_budget(2);
  two.train(0, 2);  // another plan, and other content in the memory
  one.train(0, 6);
  two.train(0, 6);
  EXPECT_THAT(one.model().gradients(), ElementsAreArray(copy_of(two.model().gradients())));
}

TEST(CompiledModel, EvaluationMatchesTrainingWithoutDropout) {
  Cnn cnn;
  const MetricSums trained = cnn.train(0, 6);
  const MetricSums evaluated =
      cnn.model().evaluate_batch(cnn.all(), SparseCategoricalCrossentropy{});
  EXPECT_NEAR(evaluated.loss_sum, trained.loss_sum, 1e-5);
  EXPECT_EQ(evaluated.correct, trained.correct);
  EXPECT_EQ(evaluated.samples, 6);
  EXPECT_EQ(cnn.model().evaluate_batch(cnn.part(0, 0), SparseCategoricalCrossentropy{}).samples, 0);
}

TEST(CompiledModel, EvaluationKeepsTheGradients) {
  Cnn cnn;
  cnn.train(0, 6);
  const std::vector<float> before = copy_of(cnn.model().gradients());
  cnn.model().evaluate_batch(cnn.all(), SparseCategoricalCrossentropy{});
  EXPECT_THAT(cnn.model().gradients(), ElementsAreArray(before));
}

TEST(CompiledModel, PredictsEachSampleAsInALargerBatch) {
  Cnn cnn;
  const std::vector<float> whole = copy_of(cnn.model().predict_batch(6, cnn.all().features));
  ASSERT_EQ(whole.size(), 60u);
  EXPECT_THAT(cnn.model().predict_batch(0, {}), IsEmpty());
  for (std::size_t sample = 0; sample < 6; ++sample)
    EXPECT_THAT(copy_of(cnn.model().predict_batch(1, cnn.part(sample, 1).features)),
                Pointwise(FloatNear(1e-5f), copy_of(std::span(whole).subspan(sample * 10, 10))));
}

TEST(CompiledModel, ConvertsPixelsToFeatures) {
  Cnn cnn;
  std::vector<std::uint8_t> pixels(3 * 512);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7);
  BatchView batch = cnn.part(0, 3);
  batch.features = {};
  batch.pixels = pixels;
  batch.normalization = {.channels = 2, .mean = {0.5f, 0.25f}, .deviation = {0.25f, 0.5f}};
  std::vector<float> features(pixels.size());
  pixels_to_features(pixels, batch.normalization, features);
  const std::vector<float> expected = copy_of(cnn.model().predict_batch(3, features));
  EXPECT_THAT(cnn.model().predict_batch(batch), ElementsAreArray(expected));
}

TEST(CompiledModel, InitialValuesDependOnSeedAndNameAlone) {
  Cnn one;
  Cnn two(1);
  EXPECT_THAT(one.model().parameters(), ElementsAreArray(copy_of(two.model().parameters())));
  two.model().initialize(4);
  EXPECT_NE(copy_of(one.model().parameters()), copy_of(two.model().parameters()));
  EXPECT_THAT(ParameterTable::slice(one.model().parameters(),
                                    *one.model().parameter_table().find("dense/bias")),
              Each(0.0f));
}

TEST(CompiledModel, ParametersOfUnusedLayersHaveNoGradientAndAreReported) {
  Network network({4});
  const NodeId used = network.add(Dense({.units = 3}));
  network.add(Dense({.units = 3}), {kInput}, "unused");
  network.add(Dense({.units = 2}), {used}, "output");
  Trial trial(std::move(network), 2);
  std::ranges::fill(trial.model().gradients(), 5.0f);
  std::vector<std::size_t> heard;
  const BatchView batch{.samples = 2,
                        .features = trial.features(),
                        .targets = {.labels = {}, .values = trial.targets()}};
  trial.model().train_batch(batch, {.global_samples = 2}, MeanSquaredError{}, false,
                            [&](std::size_t parameter) { heard.push_back(parameter); });
  EXPECT_THAT(trial.gradient("unused/kernel"), Each(0.0f));
  EXPECT_THAT(heard, ElementsAreArray(counting(6)));
}

TEST(CompiledModel, KeepsThePaddingOfGradientsAtZero) {
  Cnn cnn;
  cnn.train(0, 6);
  cnn.train(0, 6, true);
  std::size_t end = 0;
  for (const ParameterInfo& entry : cnn.model().parameter_table().entries()) {
    EXPECT_THAT(copy_of(cnn.model().gradients().subspan(end, entry.offset - end)), Each(0.0f))
        << "before " << entry.name;
    end = entry.offset + entry.count;
  }
}

TEST(CompiledModel, AllocatesNothingInAPreparedStep) {
  Cnn cnn;
  cnn.model().prepare(6, true);
  const std::size_t prepared = cnn.model().memory().total();
  EXPECT_GT(prepared, 3 * cnn.model().parameters().size());
  cnn.train(0, 6);
  cnn.train(0, 2);
  EXPECT_EQ(cnn.model().memory().total(), prepared)
      << "a smaller batch fits where a larger one did";
}

TEST(CompiledModel, RejectsArraysWhoseSizeOverflows) {
  Network network({32, 32, 1});
  network.add(UpSampling2D({.size = 1 << 25}));
  device::HostAllocator allocator;
  CompiledModel model(std::make_shared<const Network>(network), device::Device{}, allocator);
  for (const std::int64_t samples : {4, 8})
    EXPECT_EQ(input_error_of([&] { model.prepare(samples, false); }),
              fmt::format("[up_sampling2d] expected an array of at most 2^48 elements, got {} "
                          "samples of [1073741824, 1073741824, 1]",
                          samples));
}

// A sigmoid keeps only its output, in the memory of its input; a GELU also keeps its input. Neither
// needs a second gradient.
TEST(CompiledModel, WritesTheGradientOfAFunctionOverThatOfItsOutput) {
  constexpr std::int64_t kSamples = 64;
  constexpr std::int64_t kUnits = 2048;
  const auto activations = [](bool has_gelu) {
    Network network({8});
    network.add(Dense({.units = kUnits}));
    if (has_gelu)
      network.add(GELU());
    else
      network.add(Sigmoid());
    network.add(Dense({.units = 4}));
    device::HostAllocator allocator;
    CompiledModel model(std::make_shared<const Network>(network), device::Device{}, allocator);
    model.prepare(kSamples, true);
    return model.memory().activations;
  };
  constexpr std::size_t kArray = kSamples * kUnits * sizeof(float);
  EXPECT_LT(activations(true) - activations(false), kArray + kArray / 2);
}

TEST(CompiledModel, MovesWithItsPlans) {
  Cnn cnn;
  cnn.train(0, 6);
  const std::vector<float> expected = copy_of(cnn.model().gradients());
  CompiledModel moved = std::move(cnn.model());
  moved.train_batch(cnn.all(), cnn.context(), SparseCategoricalCrossentropy{});
  EXPECT_THAT(moved.gradients(), ElementsAreArray(expected));
}

TEST(CompiledModel, ReplicasInThreadsDoNotDisturbEachOther) {
  Cnn alone;
  alone.train(0, 6);
  const std::vector<float> expected = copy_of(alone.model().gradients());
  constexpr std::size_t kReplicas = 3;
  std::vector<std::vector<float>> gradients(kReplicas);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < kReplicas; ++r)
    threads.emplace_back([&, r] {
      set_thread_budget(1);
      Cnn replica;
      for (int step = 0; step < 3; ++step) replica.train(0, 6);
      gradients[r] = copy_of(replica.model().gradients());
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t r = 0; r < kReplicas; ++r)
    EXPECT_THAT(gradients[r], Pointwise(FloatNear(1e-6f), expected)) << "replica " << r;
}

TEST(CompiledModel, RequiresABackendForItsDevice) {
  device::HostAllocator allocator;
  EXPECT_THAT(error_of(ErrorCategory::device,
                       [&] {
                         CompiledModel(std::make_shared<const Network>(zoo::linear({4}, 2)),
                                       {device::DeviceKind::gpu, 0}, allocator);
                       }),
              HasSubstr("gpu:0"));
}

TEST(CompiledModel, RequiresALayer) {
  device::HostAllocator allocator;
  EXPECT_EQ(input_error_of([&] {
              CompiledModel(std::make_shared<const Network>(Shape{4}), device::Device{}, allocator);
            }),
            "[network] expected a network of at least one layer, got none");
}

TEST(CompiledModel, ChecksTheSizeOfTheFeatures) {
  Cnn cnn;
  BatchView batch = cnn.all();
  batch.features = batch.features.subspan(1);
  EXPECT_THROW(cnn.model().train_batch(batch, cnn.context(), SparseCategoricalCrossentropy{}),
               CheckFailure);
}

TEST(CompiledModel, ReportsALabelOutsideTheClasses) {
  Cnn cnn(2);
  const std::vector<std::int32_t> wrong = {3, 10};
  BatchView batch = cnn.all();
  batch.targets.labels = wrong;
  EXPECT_THAT(
      error_of(
          ErrorCategory::data,
          [&] { cnn.model().train_batch(batch, cnn.context(), SparseCategoricalCrossentropy{}); }),
      HasSubstr("sample 1 of the batch has label 10"));
}

// price = relu(columns) + picture, columns = a . table, picture = b . image, size = c columns + d.
TEST(CompiledModel, HasSeveralInputsAndOutputs) {
  Network network({{.name = "image", .shape = {1, 2, 1}}, {.name = "table", .shape = {2}}},
                  "house");
  const NodeId flat = network.add(Flatten());
  const NodeId columns =
      network.add(Dense({.units = 1, .use_bias = false}), {network.input("table")}, "columns");
  const NodeId cut = network.add(ReLU());
  const NodeId picture = network.add(Dense({.units = 1, .use_bias = false}), {flat}, "picture");
  network.output("price", network.add(Add(), {cut, picture}));
  network.output("columns", columns);
  network.output("size", network.add(Dense({.units = 1}), {columns}, "size"));
  device::HostAllocator allocator;
  CompiledModel model(std::make_shared<const Network>(network), device::Device{}, allocator);
  const auto part = [&](std::span<float> flat_array, std::string_view name) {
    return ParameterTable::slice(flat_array, *model.parameter_table().find(name));
  };
  const auto set = [&](std::string_view name, const std::vector<float>& values) {
    std::ranges::copy(values, part(model.parameters(), name).begin());
  };
  set("columns/kernel", {1, -2});
  set("picture/kernel", {3, 0.5f});
  set("size/kernel", {4});
  set("size/bias", {1});

  const std::vector<std::uint8_t> pixels = {255, 0, 0, 255};
  const std::vector<float> table = {3, 1, 1, 1};
  const std::vector<float> prices = {3, 0};
  const std::vector<InputView> inputs = {{.pixels = pixels}, {.features = table}};
  const BatchView batch{.samples = 2, .targets = {.values = prices}, .inputs = inputs};
  const auto predicted = [&](std::size_t output) {
    return copy_of(model.predict_batch(batch, output));
  };
  EXPECT_THAT(predicted(0), ElementsAre(4, 0.5f));
  EXPECT_THAT(predicted(1), ElementsAre(1, -1));
  EXPECT_THAT(predicted(2), ElementsAre(5, -3));

  // The loss is that of the first output.
  EXPECT_EQ(model.evaluate_batch(batch, MeanSquaredError{}).loss_sum, 1.25);
  for (int pass = 0; pass < 2; ++pass) {
    const MetricSums sums =
        model.train_batch(batch, {.global_samples = 2}, MeanSquaredError{}, pass > 0);
    EXPECT_EQ(sums.loss_sum, 1.25);
    const auto times = static_cast<float>(pass + 1);
    EXPECT_THAT(part(model.gradients(), "columns/kernel"), ElementsAre(3 * times, times));
    EXPECT_THAT(part(model.gradients(), "picture/kernel"), ElementsAre(times, 0.5f * times));
    EXPECT_THAT(part(model.gradients(), "size/kernel"), Each(0.0f));
  }

  // With a second loss, of the output "size", whose gradient reaches the columns, too.
  const std::vector<float> sizes = {4, -1};
  const std::vector<Targets> more = {{.values = sizes}};
  BatchView both = batch;
  both.more_targets = more;
  const TotalLoss total(
      {{.loss = MeanSquaredError{}}, {.loss = MeanSquaredError{}, .output = 2, .weight = 0.5F}});
  const MetricSums sums = model.train_batch(both, {.global_samples = 2}, total);
  EXPECT_EQ(sums.loss_sum, 1.25 + 0.5 * 5);
  EXPECT_EQ(sums.samples, 2);
  EXPECT_THAT(part(model.gradients(), "columns/kernel"), ElementsAre(3 + 2, 1 - 2));
  EXPECT_THAT(part(model.gradients(), "picture/kernel"), ElementsAre(1, 0.5f));
  EXPECT_THAT(part(model.gradients(), "size/kernel"), ElementsAre(1.5f));
  EXPECT_THAT(part(model.gradients(), "size/bias"), ElementsAre(-0.5f));
  std::vector<std::span<const float>> outputs;
  EXPECT_EQ(model.evaluate_batch(both, total, &outputs).loss_sum, 3.75);
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_THAT(outputs[2], ElementsAre(5, -3));
  const std::vector<float> weights = {2, 0};
  const std::vector<Targets> more_weighted = {{.values = sizes, .sample_weights = weights}};
  both.targets.sample_weights = weights;
  both.more_targets = more_weighted;
  const MetricSums weighted = model.train_batch(both, {.global_samples = 2}, total);
  EXPECT_EQ(weighted.loss_sum, 2 * (1 + 0.5));
  EXPECT_EQ(weighted.weight_excess, 0);
  EXPECT_THAT(part(model.gradients(), "size/kernel"), ElementsAre(1));

  const BatchView one_input{.samples = 2, .features = table, .targets = batch.targets};
  EXPECT_EQ(error_of(ErrorCategory::data, [&] { model.predict_batch(one_input); }),
            "[house] expected a batch of 2 inputs, got 1");
}

TEST(CompiledModel, RequiresOutputsThatDependOnEveryInput) {
  device::HostAllocator allocator;
  Network network({{.name = "a", .shape = {2}}, {.name = "b", .shape = {2}}});
  network.add(ReLU());
  EXPECT_EQ(input_error_of([&] {
              CompiledModel(std::make_shared<const Network>(network), device::Device{}, allocator);
            }),
            "[network] expected outputs that depend on every input: re_lu; none depends on \"b\"");
}

}  // namespace
}  // namespace lockstep::inline v0::model
