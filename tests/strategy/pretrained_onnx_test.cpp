// Weights from ONNX files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/element_type.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/model.h"
#include "lockstep/onnx/write_model.h"
#include "lockstep/train/options/pretrained.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"
#include "tests/strategy/pretrained.h"

namespace lockstep::inline v0::train {
namespace {

using ::testing::Contains;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

std::filesystem::path onnx_reference(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/reference/onnx" / (name + ".onnx");
}

/// The network of residual.onnx, whose layers are "stem", "norm", "conv" and "fc".
model::Network onnx_network(const std::array<std::string, 4>& names, std::int64_t classes = 5) {
  model::Network network({8, 8, 3}, "residual");
  network.add(model::Conv2D({.filters = 6, .padding = model::Padding::same, .use_bias = false}),
              {model::kInput}, names[0]);
  network.add(model::BatchNormalization({.momentum = 0.9f, .epsilon = 1e-5f}), {network.last()},
              names[1]);
  const model::NodeId stem = network.add(model::ReLU());
  network.add(model::Conv2D({.filters = 6, .padding = model::Padding::same}), {stem}, names[2]);
  const model::NodeId branch = network.add(model::GELU());
  network.add(model::Add(), {branch, stem});
  network.add(model::MaxPool2D());
  network.add(model::Flatten());
  network.add(model::Dense({.units = classes}), {network.last()}, names[3]);
  return network;
}

TEST(PretrainedOnnx, MatchesByLayerNames) {
  const checkpoint::SafetensorsFile file(std::filesystem::path(LOCKSTEP_SOURCE_DIR) /
                                         "tests/reference/onnx/expected.safetensors");
  const auto values = [&](const std::string& name) {
    const checkpoint::SafetensorsFile::Entry& entry = *file.find(name);
    std::vector<float> read(static_cast<std::size_t>(model::element_count(entry.shape)));
    file.read(entry, read);
    return read;
  };
  TestTrainer test(onnx_network({"stem", "norm", "conv", "fc"}));
  const PretrainedWeights loaded =
      test.trainer().initialize_from({.path = onnx_reference("residual")});
  EXPECT_EQ(loaded.file, onnx_reference("residual"));
  EXPECT_THAT(test.logits(values("residual/input")),
              Pointwise(FloatNear(1e-5F), values("residual/output")));
}

TEST(PretrainedOnnx, MatchesByOrderAndShapeIfNamesDiffer) {
  TestTrainer named(onnx_network({"stem", "norm", "conv", "fc"}));
  named.trainer().initialize_from({.path = onnx_reference("residual")});
  TestTrainer test(onnx_network({"a", "b", "c", "d"}));
  test.trainer().initialize_from({.path = onnx_reference("residual")});
  EXPECT_EQ(test.parameter("a/kernel"), named.parameter("stem/kernel"));
  EXPECT_EQ(test.parameter("d/bias"), named.parameter("fc/bias"));
}

TEST(PretrainedOnnx, KeepsAnotherHead) {
  TestTrainer named(onnx_network({"stem", "norm", "conv", "fc"}));
  named.trainer().initialize_from({.path = onnx_reference("residual")});
  for (const std::string head : {"fc", "classes"}) {  // by name, and by order
    TestTrainer test(onnx_network({"stem", "norm", "conv", head}, 7));
    const std::vector<float> kernel = test.parameter(head + "/kernel");
    test.trainer().initialize_from({.path = onnx_reference("residual"), .reset_head = true});
    EXPECT_EQ(test.parameter(head + "/kernel"), kernel);
    EXPECT_EQ(test.parameter("conv/kernel"), named.parameter("conv/kernel"));
  }
}

TEST(PretrainedOnnx, NamesMismatches) {
  TestTrainer test(onnx_network({"stem", "norm", "conv", "fc"}, 7));
  EXPECT_EQ(test.init_error({.path = onnx_reference("residual")}),
            fmt::format("[init-from] expected the weights of residual in {}, with the same names, "
                        "or the same order and shapes, got fc/kernel [5, 96] instead of [7, 96], "
                        "fc/bias [5] instead of [7]; --reset-head does not load fc; --partial "
                        "loads the 7 tensors that fit",
                        onnx_reference("residual").string()));
  const PretrainedWeights loaded =
      test.trainer().initialize_from({.path = onnx_reference("residual"), .partial = true});
  EXPECT_THAT(loaded.table,
              Contains(HasSubstr("of another shape or type     2  fc/kernel [5, 96]")));
}

TEST(PretrainedOnnx, AddsTwoBiases) {
  const auto network = [](bool two_biases) {
    const std::string rnn = fmt::format(
        R"("type": "simple_rnn", "units": 4, "bidirectional": true, "recurrent_bias": {})",
        two_biases);
    return model::network_from_json(
        fmt::format(R"({{"inputs": {{"x": {{"shape": [7], "type": "int32"}}}}, "layers": [
            {{"type": "embedding", "name": "embed", "vocabulary": 20, "dimension": 6}},
            {{"name": "rnn", "return_sequences": true, {0}}}, {{"name": "rnn_1", {0}}},
            {{"type": "dense", "name": "fc", "units": 5}}]}})",
                    rnn),
        "net.json");
  };
  TestTrainer one(network(false));
  one.trainer().initialize_from({.path = onnx_reference("elman")});
  TestTrainer two(network(true));
  two.trainer().initialize_from({.path = onnx_reference("elman")});
  std::vector<float> sum = two.parameter("rnn_1/backward_bias");
  const std::vector<float> second = two.parameter("rnn_1/backward_recurrent_bias");
  EXPECT_THAT(second, Contains(::testing::Ne(0.0F)));
  for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += second[k];
  EXPECT_EQ(one.parameter("rnn_1/backward_bias"), sum);
}

TEST(PretrainedOnnx, ReadsTheRowsOfAnExportedBert) {
  const zoo::DataInput inputs[] = {
      {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 11}};
  const std::vector<std::int32_t> tokens = {1, 4, 7, 2, 0, 0};
  const model::InputView views[] = {{.indices = tokens}};
  for (const char* const name : {"bert:1x8x2", "minilm:1x8x2"}) {
    TestTrainer pretrained(zoo::make(name, inputs, 3), 7);
    const checkpoint::ScratchDirectory scratch;
    const std::filesystem::path path = scratch.path() / "bert.onnx";
    const std::vector<float> parameters = pretrained.all_values();
    checkpoint::overwrite(path, onnx::write_model(onnx::export_network(
                                    pretrained.trainer().network(),
                                    {.parameters = parameters, .buffers = {}}, {.fold = false})));
    TestTrainer test(zoo::make(name, inputs, 3));
    test.trainer().initialize_from({.path = path});
    EXPECT_THAT(test.predicted({.samples = 1, .inputs = views}),
                Pointwise(FloatNear(1e-6F), pretrained.predicted({.samples = 1, .inputs = views})));
    const zoo::DataInput longer[] = {
        {{.name = "tokens", .shape = {7}, .type = ElementType::int32}, 11}};
    EXPECT_THAT(TestTrainer(zoo::make(name, longer, 3)).init_error({.path = path}),
                HasSubstr("embeddings.position_embeddings/embeddings [6, 8] instead of"));
  }
}

TEST(PretrainedOnnx, MayBeRenamed) {
  TestTrainer test(onnx_network({"stem", "norm", "conv", "fc"}, 7));
  test.trainer().initialize_from({.path = onnx_reference("residual"),
                                  .partial = true,
                                  .map = {{.from = "fc/*", .to = "head/*"}}});
  TestTrainer other(onnx_network({"stem", "norm", "conv", "head"}));
  other.trainer().initialize_from(
      {.path = onnx_reference("residual"), .map = {{.from = "fc/*", .to = "head/*"}}});
  EXPECT_EQ(other.parameter("conv/bias"), test.parameter("conv/bias"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
