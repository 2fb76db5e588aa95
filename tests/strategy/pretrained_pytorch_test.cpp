// Weights with the names of PyTorch, most in files of scripts/make_reference.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/element_type.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/train/options/pretrained.h"
#include "lockstep/train/options/weight_names.h"
#include "lockstep/train/trainer.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/pretrained.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;

std::vector<float> expected(const std::string& name) {
  const checkpoint::SafetensorsFile file(reference("pretrained_expected"));
  const checkpoint::SafetensorsFile::Entry& entry = *file.find(name);
  std::vector<float> values(static_cast<std::size_t>(model::element_count(entry.shape)));
  file.read(entry, values);
  return values;
}

class PretrainedTypes : public ::testing::TestWithParam<const char*> {};

TEST_P(PretrainedTypes, MatchPyTorchsLogits) {
  TestTrainer test(residual_network());
  const PretrainedWeights loaded =
      test.trainer().initialize_from({.path = reference(std::string("pretrained_") + GetParam())});
  EXPECT_EQ(loaded.file, reference(std::string("pretrained_") + GetParam()));
  EXPECT_EQ(loaded.uninitialized_head, "");
  EXPECT_THAT(test.logits(expected("input")),
              Pointwise(FloatNear(2e-4F), expected(std::string("logits/") + GetParam())));
}

std::string name_of_type(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Files, PretrainedTypes,
                         ::testing::Values("float32", "bfloat16", "float16"), name_of_type);

TEST(PretrainedPyTorch, ReachesEveryReplica) {
  const auto session = shared_session();
  const auto strategy = local_strategy(*session, 3);
  Trainer trainer(*strategy, residual_network());
  trainer.initialize_from({.path = reference("pretrained_float32")});
  TestTrainer alone(residual_network());
  alone.trainer().initialize_from({.path = reference("pretrained_float32")});
  for (int local = 0; local < 3; ++local)
    EXPECT_EQ(trainer.replicas()[local].parameter_hash(), alone.trainer().parameter_hash());
  trainer.replicas().check_agreement(0);
}

TEST(PretrainedPyTorch, TransposesKernelsOfConvolutions) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  model::Network network({1, 2, 3}, "small");
  network.add(model::Conv2D({.filters = 2, .kernel = {1, 2}}));
  write_tensors(path, {{"conv2d.weight", {2, 3, 1, 2}}, {"conv2d.bias", {2}}});
  TestTrainer test(std::move(network));
  test.trainer().initialize_from({.path = path});
  EXPECT_THAT(test.parameter("conv2d/kernel"), ElementsAre(1, 3, 5, 2, 4, 6, 7, 9, 11, 8, 10, 12));
  EXPECT_THAT(test.parameter("conv2d/bias"), ElementsAre(1, 2));

  model::Network row({2, 3}, "row");
  row.add(model::Conv1D({.filters = 2, .kernel = 2}));
  write_tensors(path, {{"conv1d.weight", {2, 3, 2}}, {"conv1d.bias", {2}}});
  TestTrainer in_a_row(std::move(row));
  in_a_row.trainer().initialize_from({.path = path});
  EXPECT_EQ(in_a_row.parameter("conv1d/kernel"), test.parameter("conv2d/kernel"));
}

TEST(PretrainedPyTorch, ReadsMobileNetsWithTheNamesOfTorchvision) {
  std::vector<std::pair<std::string, model::Shape>> tensors;
  const auto convolve = [&](const std::string& convolution, const std::string& normalization,
                            std::int64_t outputs, std::int64_t inputs, std::int64_t kernel) {
    tensors.push_back({convolution + ".weight", {outputs, inputs, kernel, kernel}});
    for (const char* name : {".weight", ".bias", ".running_mean", ".running_var"})
      tensors.push_back({normalization + name, {outputs}});
  };
  convolve("features.0.0", "features.0.1", 8, 3, 3);
  convolve("features.1.conv.0.0", "features.1.conv.0.1", 8, 1, 3);
  convolve("features.1.conv.1", "features.1.conv.2", 8, 8, 1);
  std::int64_t inputs = 8;  // widths are scaled by 0.1
  for (int block = 2; block < 18; ++block) {
    const std::int64_t outputs = block < 11 ? 8 : block < 17 ? 16 : 32;
    const std::string name = fmt::format("features.{}.conv", block);
    convolve(name + ".0.0", name + ".0.1", 6 * inputs, inputs, 1);
    convolve(name + ".1.0", name + ".1.1", 6 * inputs, 1, 3);
    convolve(name + ".2", name + ".3", outputs, 6 * inputs, 1);
    inputs = outputs;
  }
  convolve("features.18.0", "features.18.1", 1280, 32, 1);
  tensors.push_back({"classifier.1.weight", {10, 1280}});
  tensors.push_back({"classifier.1.bias", {10}});
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  write_tensors(path, tensors);
  TestTrainer test(zoo::mobilenet_v2({16, 16, 3}, 10, {.width = 0.1}));
  test.trainer().initialize_from({.path = path});
  EXPECT_EQ(test.parameter("features.0.0/kernel")[1], 10) << "the second channel";
  EXPECT_EQ(test.parameter("features.17.conv.1.0/kernel")[1], 2) << "the second column";
}

TEST(PretrainedPyTorch, ReadsBertsWithTheNamesOfHuggingFace) {
  // As in scripts/make_reference_minilm.py.
  const std::vector<std::int32_t> tokens = {1, 4, 7, 2, 0, 0, 1, 3, 9, 10, 5, 2};
  const std::vector<std::int32_t> segments = {1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1};
  const zoo::DataInput inputs[] = {
      {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 11},
      {{.name = "segments", .shape = {6}, .type = ElementType::int32}, 0}};
  TestTrainer embeddings(zoo::make("minilm:2x8x2,features", inputs, 0));
  EXPECT_THAT(
      embeddings.trainer().initialize_from({.path = reference("minilm"), .partial = true}).table,
      AllOf(Contains("missing in the file          0"),
            Contains("unused in the file           2  pooler.dense.bias [8], pooler.dense.weight "
                     "[8, 8]")));
  const model::InputView views[] = {{.indices = tokens}, {.indices = segments}};
  EXPECT_THAT(embeddings.predicted({.samples = 2, .inputs = views}),
              Pointwise(FloatNear(1e-5F), [] {
                const checkpoint::SafetensorsFile file(reference("minilm_expected"));
                std::vector<float> values(16);
                file.read(*file.find("embeddings"), values);
                return values;
              }()));
  TestTrainer classifier(zoo::make("minilm:2x8x2", inputs, 3));
  EXPECT_THAT(
      classifier.init_error({.path = reference("minilm"), .reset_head = true}),
      ::testing::EndsWith("got unexpected pooler.dense.bias [8], unexpected pooler.dense.weight "
                          "[8, 8]; if only a part of the file is wanted, --partial loads what "
                          "fits, and the network does not compute what that of the file computes"));
  ::testing::internal::CaptureStderr();
  const PretrainedWeights loaded = classifier.trainer().initialize_from(
      {.path = reference("minilm"), .reset_head = true, .partial = true});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("minilm.safetensors has weights that the network has no place for"));
  EXPECT_EQ(loaded.uninitialized_head, "classifier");
  EXPECT_EQ(classifier.parameter("encoder.layer.1.output.dense/kernel"),
            embeddings.parameter("encoder.layer.1.output.dense/kernel"));
}

TEST(PretrainedPyTorch, ReadsTheBertClassifiersOfHuggingFace) {
  // As in scripts/make_reference_bert.py: the file has nine positions, the network six.
  const std::vector<std::int32_t> tokens = {1, 4, 7, 2, 0, 0, 1, 3, 9, 10, 5, 2};
  const std::vector<std::int32_t> segments = {1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1};
  const zoo::DataInput inputs[] = {
      {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 11},
      {{.name = "segments", .shape = {6}, .type = ElementType::int32}, 0}};
  TestTrainer test(zoo::make("bert:2x8x2", inputs, 3));
  ::testing::internal::CaptureStderr();
  test.trainer().initialize_from(
      {.path = reference("bert"), .map = {{.from = "bert.*", .to = "*"}}});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("warning")));
  const model::InputView views[] = {{.indices = tokens}, {.indices = segments}};
  EXPECT_THAT(test.predicted({.samples = 2, .inputs = views}), Pointwise(FloatNear(1e-5F), [] {
                const checkpoint::SafetensorsFile file(reference("bert_expected"));
                std::vector<float> values(2 * 3);
                file.read(*file.find("logits"), values);
                return values;
              }()));
}

TEST(PretrainedPyTorch, ReadsOneTokenType) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  write_tensors(path, {{"embeddings.token_type_embeddings.weight", {1, 8}}});
  const zoo::DataInput inputs[] = {
      {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 11}};
  TestTrainer test(zoo::make("bert:1x8x1", inputs, 3));
  std::vector<float> rows = test.parameter("embeddings.token_type_embeddings/embeddings");
  std::iota(rows.begin(), rows.begin() + 8, 1.0F);
  test.trainer().initialize_from({.path = path, .partial = true});
  EXPECT_EQ(test.parameter("embeddings.token_type_embeddings/embeddings"), rows);
}

class VisionTransformers : public ::testing::TestWithParam<const char*> {};

TEST_P(VisionTransformers, MatchThoseOfTimm) {
  // As in scripts/make_reference_vit.py.
  const std::string name = GetParam();
  const bool has_class_token = name == "vit_class_token";
  TestTrainer test(zoo::make(
      has_class_token ? "vit:2x8x2,patch=4,class_token" : "vit:2x8x2,patch=4", {8, 12, 3}, 5));
  test.trainer().initialize_from({.path = reference(name)});
  const checkpoint::SafetensorsFile file(reference("vit_expected"));
  std::vector<float> images(2 * 8 * 12 * 3);
  std::vector<float> logits(2 * 5);
  file.read(*file.find("images"), images);
  file.read(*file.find(name), logits);
  EXPECT_THAT(test.logits(images), Pointwise(FloatNear(1e-5F), logits));
}

INSTANTIATE_TEST_SUITE_P(Files, VisionTransformers, ::testing::Values("vit", "vit_class_token"),
                         name_of_type);

TEST(PretrainedPyTorch, WritesTheClassTokenIntoItsPosition) {
  model::Network network = zoo::make("vit:1x8x2,patch=4,class_token", {8, 8, 3}, 5);
  std::vector<float> parameters(network.parameters().flat_size());
  std::iota(parameters.begin(), parameters.end(), 1.0F);
  const auto weights = torch_weights(network, parameters, {}, "export", "model.pt");
  const auto positions = std::ranges::find(weights, "pos_embed", &NamedWeight::name);
  const auto token = std::ranges::find(weights, "cls_token", &NamedWeight::name);
  ASSERT_TRUE(positions != weights.end() && token != weights.end());
  EXPECT_EQ(positions->shape, model::Shape({1, 5, 8}));
  EXPECT_EQ(token->shape, model::Shape({1, 1, 8}));
  EXPECT_THAT(token->stored(), Each(0.0F));
  EXPECT_NE(positions->stored().front(), 0);
}

TEST(PretrainedPyTorch, NamesAClassTokenThatTheNetworkLacks) {
  TestTrainer test(zoo::make("vit:2x8x2,patch=4", {8, 12, 3}, 5));
  EXPECT_THAT(test.init_error({.path = reference("vit_class_token")}),
              AllOf(HasSubstr("pos_embed [1, 7, 8] instead of [1, 6, 8]"),
                    HasSubstr("unexpected cls_token [1, 1, 8]")));
}

TEST(PretrainedPyTorch, ReadsTheGpt2OfHuggingFace) {
  // As in scripts/make_reference_gpt2.py: the file has nine positions, the network six.
  const std::vector<std::int32_t> tokens = {1, 4, 7, 2, 0, 3, 1, 3, 9, 10, 5, 2};
  const zoo::DataInput inputs[] = {
      {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 11}};
  TestTrainer test(zoo::make("gpt:2x8x2", inputs, 0));
  test.trainer().initialize_from({.path = reference("gpt2")});
  const model::InputView views[] = {{.indices = tokens}};
  EXPECT_THAT(test.predicted({.samples = 2, .inputs = views}), Pointwise(FloatNear(2e-5F), [] {
                const checkpoint::SafetensorsFile file(reference("gpt2_expected"));
                std::vector<float> values(2 * 6 * 11);
                file.read(*file.find("logits"), values);
                return values;
              }()));
}

TEST(PretrainedPyTorch, TransposesSquareKernelsOnlyWithThoseOfGpt2) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  const zoo::DataInput inputs[] = {
      {{.name = "tokens", .shape = {4}, .type = ElementType::int32}, 3}};
  const auto projection_of = [&](const model::Shape& kernel) {
    write_tensors(path, {{"h.0.attn.c_attn.weight", kernel}, {"h.0.attn.c_proj.weight", {2, 2}}});
    TestTrainer test(zoo::make("gpt:1x2x1", inputs, 0));
    test.trainer().initialize_from({.path = path, .partial = true});
    return test.parameter("h.0.attn.c_proj/kernel");
  };
  EXPECT_THAT(projection_of({6, 2}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(projection_of({2, 6}), ElementsAre(1, 3, 2, 4));
}

TEST(PretrainedPyTorch, ReordersKernelsThatReadFlattenedImages) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  write_tensors(path, {{"dense.weight", {2, 12}}, {"dense.bias", {2}}});
  model::Network network({2, 2, 3}, "flattened");
  network.add(model::Flatten());
  network.add(model::ReLU());
  network.add(model::Sigmoid());
  network.add(model::Reshape({.shape = {12}}));
  network.add(model::Dense({.units = 2}));
  TestTrainer test(std::move(network));
  test.trainer().initialize_from({.path = path});
  EXPECT_THAT(test.parameter("dense/kernel"),
              ElementsAre(1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12, 13, 17, 21, 14, 18, 22, 15, 19, 23,
                          16, 20, 24));
  write_tensors(path, {{"dense.weight", {10, 12}}, {"dense.bias", {10}}});
  TestTrainer grey(zoo::linear({3, 4, 1}, 10));
  grey.trainer().initialize_from({.path = path});
  EXPECT_EQ(grey.parameter("dense/kernel")[2], 3);
}

TEST(PretrainedPyTorch, RejectsFlattenedImagesThatOtherLayersRead) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  write_tensors(path, {{"dense.weight", {2, 12}}, {"dense.bias", {2}}});
  model::Network network({2, 2, 3}, "normalized");
  network.add(model::Flatten());
  network.add(model::BatchNormalization());
  network.add(model::Dense({.units = 2}));
  TestTrainer test(std::move(network));
  EXPECT_EQ(test.init_error({.path = path}),
            fmt::format("[init-from] expected a network whose flattened images only dense layers "
                        "read, for {}, which has PyTorch's names and order of values, got "
                        "normalized, where batch_normalization passes them on",
                        path.string()));

  model::Network permuted({2, 2, 3}, "permuted");
  permuted.add(model::Permute({.dims = {3, 1, 2}}));
  permuted.add(model::Flatten());
  permuted.add(model::Dense({.units = 2}));
  EXPECT_THAT(TestTrainer(std::move(permuted)).init_error({.path = path}),
              ::testing::EndsWith("got permuted, where permute passes them on"));
}

TEST(PretrainedPyTorch, RoundsFloat64) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  const std::string header =
      R"({"dense.bias":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
      R"("dense.weight":{"dtype":"F64","shape":[1,1],"data_offsets":[8,16]}})";
  const std::uint64_t length = header.size();
  const std::array<double, 2> values = {0.1, -2.0};
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(values.data()), sizeof(values));
  checkpoint::overwrite(path, bytes);
  TestTrainer test(zoo::linear({1}, 1));
  test.trainer().initialize_from({.path = path});
  EXPECT_EQ(test.parameter("dense/bias").front(), 0.1F);
  EXPECT_EQ(test.parameter("dense/kernel").front(), -2.0F);
}

}  // namespace
}  // namespace lockstep::inline v0::train
