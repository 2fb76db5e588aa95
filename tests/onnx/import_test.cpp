// Imports files of PyTorch's two exporters and of tf2onnx (scripts/make_reference_onnx.py):
// outputs, and loss and weights after a step, match PyTorch.
#include "lockstep/onnx/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json/json.h"
#include "lockstep/model/network/network_json.h"
#include "tests/model/support/reference_file.h"
#include "tests/model/support/reference_training.h"
#include "tests/paths.h"

namespace lockstep::inline v0::onnx {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

std::filesystem::path onnx_file(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/reference/onnx" / (name + ".onnx");
}

const model::ReferenceFile& expected_values() {
  static const model::ReferenceFile file("onnx/expected");
  return file;
}

/// The values of `name` in `flat`, which is laid out as `table`.
std::vector<float> values_of(const model::ParameterTable& table, std::span<const float> flat,
                             std::string_view name) {
  const auto values = model::ParameterTable::slice(flat, *table.find(name));
  return {values.begin(), values.end()};
}

/// An imported network on the CPU.
class ImportedModel {
 public:
  explicit ImportedModel(const ImportedNetwork& imported)
      : training_(imported.network, device::DeviceKind::cpu,
                  [&](const model::ParameterInfo& entry, std::span<float> values) {
                    std::ranges::copy(
                        model::ParameterTable::slice(std::span(imported.parameters), entry),
                        values.begin());
                  }) {
    std::ranges::copy(imported.buffers, training_.model().buffers().begin());
  }

  model::ReferenceTraining& training() { return training_; }

 private:
  model::ReferenceTraining training_;
};

struct OnnxCase {
  const char* name;
  bool has_step;  // NAME_after.onnx has the weights after a step of SGD
  std::vector<std::string> layers;
};

std::ostream& operator<<(std::ostream& out, const OnnxCase& one) { return out << one.name; }

/// The samples of a case; keeps the memory that the views refer to.
struct CaseBatch {
  explicit CaseBatch(const OnnxCase& test, const model::Network& network) {
    const std::string name = std::string(test.name) + "/input";
    if (network.inputs().front().type == ElementType::int32)
      view.indices = expected_values().integers(name);
    else
      view.features = expected_values().array(name).values;
    const std::size_t elements = view.indices.size() + view.features.size();
    view.samples =
        static_cast<std::int64_t>(elements) / model::element_count(network.input_shape());
    for (std::int64_t sample = 0; sample < view.samples; ++sample)
      labels.push_back(static_cast<std::int32_t>(sample % 5));
    view.targets.labels = labels;
  }

  std::vector<std::int32_t> labels;
  model::BatchView view;
};

class OnnxImport : public ::testing::TestWithParam<OnnxCase> {};

TEST_P(OnnxImport, HasTheNamesOfTheModules) {
  const ImportedNetwork imported = import_file(onnx_file(GetParam().name));
  std::vector<std::string> named;
  for (const model::Node& node : imported.network.nodes())
    if (!node.parameters.empty()) named.push_back(node.name);
  EXPECT_EQ(named, GetParam().layers);
  EXPECT_EQ(imported.network.name(), GetParam().name);
}

TEST_P(OnnxImport, PredictsWhatPyTorchPredicts) {
  const ImportedNetwork imported = import_file(onnx_file(GetParam().name));
  ImportedModel model(imported);
  const CaseBatch batch(GetParam(), imported.network);
  const auto outputs = model.training().model().predict_batch(batch.view);
  EXPECT_THAT(std::vector<float>(outputs.begin(), outputs.end()),
              Pointwise(FloatNear(1e-5f),
                        expected_values().array(std::string(GetParam().name) + "/output").values));
}

TEST_P(OnnxImport, HasADescriptionOfAnEqualNetwork) {
  const ImportedNetwork imported = import_file(onnx_file(GetParam().name));
  const auto description = model::network_to_json(imported.network);
  ASSERT_TRUE(description);
  const model::Network rebuilt = model::network_from_json(dump_json(*description), "net.json");
  EXPECT_EQ(rebuilt.summary(), imported.network.summary());
  EXPECT_EQ(model::network_to_json(rebuilt), description);
}

TEST_P(OnnxImport, TrainsAStepAsPyTorchDoes) {
  if (!GetParam().has_step) return;
  const ImportedNetwork imported = import_file(onnx_file(GetParam().name));
  const ImportedNetwork after = import_file(onnx_file(std::string(GetParam().name) + "_after"));
  ImportedModel model(imported);
  const CaseBatch batch(GetParam(), imported.network);
  const auto updater = model.training().updater(model::Sgd{});
  EXPECT_NEAR(model.training().train(batch.view),
              expected_values().array(std::string(GetParam().name) + "/loss").values.front(), 1e-5);
  model.training().update(*updater, 0.1f, 1);
  const std::span<const float> parameters = model.training().model().parameters();
  const model::ParameterTable& table = imported.network.parameters();
  for (const model::ParameterInfo& entry : table.entries()) {
    SCOPED_TRACE(entry.name);
    EXPECT_THAT(values_of(table, parameters, entry.name),
                Pointwise(FloatNear(1e-5f),
                          values_of(after.network.parameters(), after.parameters, entry.name)));
  }
  for (const model::ParameterInfo& entry : imported.network.buffers().entries()) {
    SCOPED_TRACE(entry.name);
    EXPECT_THAT(
        values_of(imported.network.buffers(), model.training().model().buffers(), entry.name),
        Pointwise(FloatNear(1e-5f), values_of(after.network.buffers(), after.buffers, entry.name)));
  }
}

const OnnxCase kOnnxCases[] = {
    {"residual", true, {"stem", "norm", "conv", "fc"}},
    {"residual_folded", false, {"stem", "conv", "fc"}},
    {"mobile", true, {"blocks.0.1", "blocks.1.0", "blocks.1.1", "left", "right", "classifier.1"}},
    {"rows", true, {"layers.2", "layers.4"}},
    {"rows_dynamo", true, {"layers.2", "layers.4"}},
    {"sequence", true, {"embed", "lstm", "norm", "gru", "fc"}},
    {"sequence_training", true, {"embed", "lstm", "norm", "gru", "fc"}},
    {"sequence_dynamo", true, {"embed", "lstm", "norm", "gru", "fc"}},
    {"last_state", true, {"embed", "gru", "fc"}},
    {"positions", true, {"embed", "places", "norm", "wide", "narrow", "conv", "fc"}},
    {"positions_dynamo", true, {"embed", "places", "norm", "wide", "narrow", "conv", "fc"}},
    {"elman", true, {"embed", "rnn", "rnn_1", "fc"}},
    {"excited",
     true,
     {"conv", "norm_1", "down", "up", "slopes", "scale", "larger", "instances", "fc"}},
    {"excited_dynamo",
     true,
     {"conv", "scale", "down", "up", "scale_1", "scale_2", "larger", "instances", "fc"}},
    {"encoder",
     true,
     {"embed", "rows", "layer.norm1", "layer.self_attn", "layer.self_attn.out_proj", "layer.norm2",
      "layer.linear1", "layer.linear2", "conv", "fc"}},
    {"encoder_dynamo",
     true,
     {"embed", "rows", "layer.norm1", "dense", "layer.self_attn.out_proj", "layer.norm2",
      "layer.linear1", "layer.linear2", "conv", "fc"}},
    {"tensorflow", false, {"model.conv2d", "model.dense"}}};

INSTANTIATE_TEST_SUITE_P(Files, OnnxImport, ::testing::ValuesIn(kOnnxCases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(OnnxImportOfImages, AddsNoLayerThatMovesElements) {
  for (const char* const name : {"residual", "mobile", "tensorflow"}) {
    const ImportedNetwork imported = import_file(onnx_file(name));
    for (const model::Node& node : imported.network.nodes()) {
      EXPECT_NE(node.layer->kind(), "permute") << name;
      EXPECT_NE(node.layer->kind(), "reshape") << name;
    }
  }
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
