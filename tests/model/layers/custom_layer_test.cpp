#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

// y = tanh(scale * x), one scale per feature. Saves scale * x from forward to backward, and uses
// scratch memory.
class ScaledTanh final : public CustomLayer {
 public:
  std::string kind() const override { return "scaled_tanh"; }

  Shape build(BuildContext& context) const override {
    if (context.input().size() != 1)
      context.refuse("expected an input [features]", "got " + to_string(context.input()));
    context.parameter("scale", context.input(),
                      {.kind = Initializer::Kind::constant, .value = 0.5f});
    return context.input();
  }

  Needs needs(const CompileContext& context) const override {
    const std::size_t bytes =
        static_cast<std::size_t>(context.batch * element_count(context.output)) * sizeof(float);
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .saved_bytes = bytes,
            .scratch_bytes = bytes};
  }

  void forward(const Tensors& t, const PassContext& /*pass*/) const override {
    auto* saved = reinterpret_cast<float*>(t.saved.data());
    std::memset(t.scratch.data(), 0xff, t.scratch.size());  // the layer may overwrite scratch
    for (std::size_t i = 0; i < t.output.size(); ++i) {
      saved[i] = t.inputs[0][i] * t.parameters[0][i % t.parameters[0].size()];
      t.output[i] = std::tanh(saved[i]);
    }
  }

  void backward(const Tensors& t, const PassContext& /*pass*/) const override {
    const auto* saved = reinterpret_cast<const float*>(t.saved.data());
    const auto scale = t.parameters[0];
    const auto gradient = t.parameter_gradients[0];
    std::ranges::fill(gradient, 0.0f);
    std::memset(t.scratch.data(), 0xff, t.scratch.size());
    for (std::size_t i = 0; i < t.output_gradient.size(); ++i) {
      const float y = std::tanh(saved[i]);
      const float inner = t.output_gradient[i] * (1 - y * y);
      gradient[i % scale.size()] += inner * t.inputs[0][i];
      if (!t.input_gradients[0].empty()) t.input_gradients[0][i] = inner * scale[i % scale.size()];
    }
  }
};

// [a] and [b] to [a + b]: a layer whose inputs have different shapes.
class OwnConcatenate final : public CustomLayer {
 public:
  OwnConcatenate(std::size_t first, std::size_t second) : widths_{first, second} {}
  std::string kind() const override { return "concatenate"; }
  Shape build(BuildContext& context) const override {
    return {context.inputs()[0][0] + context.inputs()[1][0]};
  }
  Needs needs(const CompileContext& /*context*/) const override {
    return {.inputs_in_backward = false, .output_in_backward = false};
  }

  void forward(const Tensors& t, const PassContext& /*pass*/) const override {
    for (std::size_t i = 0; i < t.output.size(); ++i) t.output[i] = t.inputs[part(i)][place(i)];
  }
  void backward(const Tensors& t, const PassContext& /*pass*/) const override {
    for (std::size_t i = 0; i < t.output_gradient.size(); ++i)
      if (!t.input_gradients[part(i)].empty())
        t.input_gradients[part(i)][place(i)] = t.output_gradient[i];
  }

 private:
  std::size_t row() const { return widths_[0] + widths_[1]; }
  std::size_t part(std::size_t i) const { return i % row() < widths_[0] ? 0 : 1; }
  std::size_t place(std::size_t i) const {
    return i / row() * widths_[part(i)] + i % row() - part(i) * widths_[0];
  }

  std::array<std::size_t, 2> widths_;
};

// [n] indices below 5 to [n] values: scale x index.
class ScaledIndex : public CustomLayer {
 public:
  std::string kind() const override { return "scaled_index"; }
  Traits traits() const override { return {.index_count = 5}; }
  Shape build(BuildContext& context) const override {
    context.parameter("scale", {1}, {.value = 0.5f});
    return context.input();
  }
  void forward(const Tensors& t, const PassContext& /*pass*/) const override {
    for (std::size_t i = 0; i < t.output.size(); ++i)
      t.output[i] = t.parameters[0][0] * static_cast<float>(t.indices[i]);
  }
  void backward(const Tensors& t, const PassContext& /*pass*/) const override {
    float& gradient = t.parameter_gradients[0][0];
    gradient = 0;
    for (std::size_t i = 0; i < t.output_gradient.size(); ++i)
      gradient += t.output_gradient[i] * static_cast<float>(t.indices[i]);
  }
};

// Reads any int32 numbers. Declares that it shares its parameter, which it cannot.
class ScaledNumber final : public ScaledIndex {
 public:
  Traits traits() const override { return {.shares_parameter = true}; }
  std::optional<std::size_t> index_input(std::size_t /*inputs*/) const override { return 0; }
};

// A device that is not the host.
class DistantBackend : public Backend {
 public:
  std::string name() const override { return "far"; }
  bool runs_on_host() const override { return false; }
  Precision precision() const override { return Precision::float32; }
  MOCK_METHOD(device::Allocator&, allocator, (), (override));
  MOCK_METHOD(device::Stream&, stream, (), (override));
  MOCK_METHOD(std::unique_ptr<Operation>, compile, (const BuiltinLayer&, const CompileContext&),
              (override));
  MOCK_METHOD(void, begin_pass, (const PassContext&, const GradientScale&), (override));
  MOCK_METHOD(void, load, (std::span<LoadedInput>, const BatchView&, bool), (override));
  MOCK_METHOD(void, compute_loss,
              (const TotalLoss&, std::size_t, const TensorView&, std::int64_t, const TensorView&,
               const RowRange&),
              (override));
  MOCK_METHOD(void, write_sums, (std::span<float>), (override));
  MOCK_METHOD(void, clear_sums, (), (override));
  MOCK_METHOD(MetricSums, read_sums, (), (override));
  MOCK_METHOD(void, accumulate, (const TensorView&, const TensorView&), (override));
  MOCK_METHOD(void, copy, (const TensorView&, const TensorView&), (override));
  MOCK_METHOD(void, fill_with_zeros, (const TensorView&), (override));
  MOCK_METHOD(void, narrow, (const TensorView&, std::span<const float>), (override));
  MOCK_METHOD(std::unique_ptr<Updater>, updater,
              (const OptimizerOptions&, const ParameterTable&, const UpdateArrays&), (override));
  MOCK_METHOD(void, read, (const TensorView&, std::span<float>), (override));
};

TEST(CustomLayer, TrainsAmongOtherLayers) {
  Network network({6});
  network.add(Dense({.units = 5}));
  network.add(ScaledTanh());
  network.add(Dense({.units = 3}));
  network.add(ScaledTanh(), {network.last()}, "last");
  expect_gradients_match_differences(network);
}

TEST(CustomLayer, MayReadSeveralInputs) {
  Network network({4});
  const NodeId first = network.add(Dense({.units = 2}));
  const NodeId second = network.add(Dense({.units = 3}), {kInput});
  network.add(OwnConcatenate(2, 3), {first, second});
  network.add(OwnConcatenate(5, 4), {network.last(), kInput}, "with_input");
  network.add(Dense({.units = 2}));
  expect_gradients_match_differences(network);
}

TEST(CustomLayer, MayReadAnInt32Input) {
  Network network({{.name = "words", .shape = {3}, .type = ElementType::int32}});
  network.add(ScaledIndex());
  network.add(Dense({.units = 2}));
  expect_gradients_match_differences(network);
}

TEST(CustomLayer, ReadsAnyIndicesWithoutALimit) {
  Network network({{.name = "numbers", .shape = {2}, .type = ElementType::int32}});
  network.add(ScaledNumber());
  Trial trial(std::move(network), 1);
  trial.indices() = {-7, 2'000'000'000};
  const float scale = trial.parameter("scaled_index/scale")[0];
  EXPECT_THAT(trial.predict(), ::testing::ElementsAre(-7 * scale, 2e9f * scale));
}

TEST(CustomLayer, CannotShareItsParameter) {
  EXPECT_THAT(input_error_of([] {
                Network network({{.name = "numbers", .shape = {2}, .type = ElementType::int32}});
                network.add(ScaledNumber());
                network.add(TiedDense({.to = "scaled_index"}));
              }),
              ::testing::HasSubstr("got \"scaled_index\", and there is none"));
}

// A number for each sample, [].
class Total final : public CustomLayer {
 public:
  std::string kind() const override { return "total"; }
  Shape build(BuildContext& /*context*/) const override { return {}; }
  void forward(const Tensors& /*tensors*/, const PassContext& /*pass*/) const override {}
  void backward(const Tensors& /*tensors*/, const PassContext& /*pass*/) const override {}
};

TEST(CustomLayer, WithScalarOutputIsRefusedByRowLayers) {
  const auto error_of = [](const auto& layer) {
    return input_error_of([&] {
      Network network({6});
      network.add(Total());
      network.add(layer);
    });
  };
  const std::string expected = "expected an input [..., features], got []";
  EXPECT_EQ(error_of(Dense({.units = 2})), "[layer dense (dense)] " + expected);
  for (const std::string& error : {error_of(BatchNormalization()), error_of(LayerNormalization()),
                                   error_of(RMSNormalization()), error_of(Softmax())})
    EXPECT_THAT(error, ::testing::HasSubstr(expected));
}

TEST(CustomLayer, DeclaresParametersLikeAnyOther) {
  Network network({6});
  network.add(ScaledTanh());
  network.add(ScaledTanh());
  ASSERT_NE(network.parameters().find("scaled_tanh_1/scale"), nullptr);
  Trial trial(std::move(network), 1);
  trial.model().initialize(1);
  EXPECT_THAT(trial.parameter("scaled_tanh/scale"), ::testing::Each(0.5f));
}

TEST(CustomLayer, RefusesInputsWithItsOwnMessage) {
  EXPECT_EQ(input_error_of([] {
              Network({2, 2, 1}).add(ScaledTanh());
            }),
            "[layer scaled_tanh (scaled_tanh)] expected an input [features], got [2, 2, 1]");
}

TEST(CustomLayer, RunsOnlyOnTheHost) {
  DistantBackend backend;
  EXPECT_EQ(error_of(ErrorCategory::device,
                     [&] {
                       ScaledTanh().compile(
                           {.name = "mine", .batch = 1, .inputs = {{3}}, .output = {3}}, backend);
                     }),
            "[layer mine (scaled_tanh)] expected a CPU replica for a custom layer, got far");
}

TEST(CustomLayer, ComputesOnlyInFloat32) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  const auto backend = make_backend(device::Device{}, {.precision = Precision::bfloat16});
  EXPECT_EQ(input_error_of([&] {
              ScaledTanh().compile({.name = "mine", .batch = 1, .inputs = {{3}}, .output = {3}},
                                   *backend);
            }),
            "[layer mine (scaled_tanh)] expected float32 for a custom layer, got bfloat16");
}

}  // namespace
}  // namespace lockstep::inline v0::model
