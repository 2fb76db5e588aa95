// Weights from PyTorch (files of scripts/make_reference) and from Lockstep's checkpoints.
#include "lockstep/strategy/pretrained.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <memory>

#include "lockstep/model/network_json.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/model.h"
#include "lockstep/onnx/write_model.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::strategy {
namespace {

using allreduce::error_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;

std::filesystem::path reference(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/reference" / (name + ".safetensors");
}

std::vector<float> expected(const std::string& name) {
  const checkpoint::SafetensorsFile file(reference("pretrained_expected"));
  const checkpoint::SafetensorsFile::Entry& entry = *file.find(name);
  std::vector<float> values(static_cast<std::size_t>(model::element_count(entry.shape)));
  file.read(entry, values);
  return values;
}

model::Network residual_network(std::int64_t classes = 10) {
  return zoo::resnet18({16, 16, 3}, classes, {.width = 2});
}

/// The session of all trainers of a test.
std::shared_ptr<job::Session> shared_session() {
  static std::weak_ptr<job::Session> current;
  auto session = current.lock();
  if (!session) {
    session = std::make_shared<job::Session>(0, nullptr, job::SessionOptions{.quiet = true});
    current = session;
  }
  return session;
}

/// A trainer of one replica, and its parameters.
class TestTrainer {
 public:
  explicit TestTrainer(model::Network network, std::uint64_t seed = 1)
      : session_(shared_session()),
        strategy_(*session_),
        trainer_(strategy_, std::move(network), {.seed = seed}) {}

  Trainer& trainer() { return trainer_; }
  std::vector<float> parameter(std::string_view name) {
    const model::ParameterTable& table = trainer_.network().parameters();
    const auto values = table.slice(model().parameters(), *table.find(name));
    return {values.begin(), values.end()};
  }
  std::vector<float> all_values() {
    std::vector<float> values(model().parameters().begin(), model().parameters().end());
    values.insert(values.end(), model().buffers().begin(), model().buffers().end());
    return values;
  }
  std::vector<float> predicted(const model::BatchView& batch) {
    const auto values = model().predict_batch(batch);
    return {values.begin(), values.end()};
  }
  std::vector<float> logits(std::span<const float> images) {
    const auto samples = static_cast<std::int64_t>(images.size()) /
                         model::element_count(trainer_.network().input_shape());
    const auto values = model().predict_batch(samples, images);
    return {values.begin(), values.end()};
  }
  /// Returns the error of initialize_from, and checks that nothing has changed.
  std::string init_error(const Pretrained& pretrained) {
    const std::vector<float> before = all_values();
    std::string message =
        checkpoint::checkpoint_error([&] { trainer_.initialize_from(pretrained); });
    EXPECT_EQ(all_values(), before) << "half loaded";
    return message;
  }

 private:
  model::CompiledModel& model() { return trainer_.replicas()[0].model(); }

  std::shared_ptr<job::Session> session_;
  OneDeviceStrategy strategy_;
  Trainer trainer_;
};

/// Writes tensors with these names and shapes, and the values 1, 2, ….
void write_tensors(const std::filesystem::path& path,
                   const std::vector<std::pair<std::string, model::Shape>>& tensors) {
  std::vector<std::vector<float>> values;
  std::vector<checkpoint::TensorView> views;
  values.reserve(tensors.size());
  for (const auto& [name, shape] : tensors) {
    auto& tensor = values.emplace_back(static_cast<std::size_t>(model::element_count(shape)));
    std::iota(tensor.begin(), tensor.end(), 1.0F);
    views.push_back({name, shape, std::span<const float>(tensor)});
  }
  checkpoint::write_safetensors(path, views);
}

// ---- PyTorch's names

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

TEST(Pretrained, ReachesEveryReplica) {
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

TEST(Pretrained, TransposesKernelsOfConvolutions) {
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

TEST(Pretrained, ReadsMobileNetsWithTheNamesOfTorchvision) {
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

TEST(Pretrained, ReadsBertsWithTheNamesOfHuggingFace) {
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

TEST(Pretrained, ReadsTheBertClassifiersOfHuggingFace) {
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

TEST(Pretrained, ReadsTheGpt2OfHuggingFace) {
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

TEST(Pretrained, TransposesSquareKernelsOnlyWithThoseOfGpt2) {
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

TEST(Pretrained, ReordersKernelsThatReadFlattenedImages) {
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

TEST(Pretrained, RejectsFlattenedImagesThatOtherLayersRead) {
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

TEST(Pretrained, RoundsFloat64) {
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

// ---- Another head

TEST(Pretrained, KeepsTheInitialHeadOnRequest) {
  TestTrainer test(residual_network(4));
  const std::vector<float> kernel = test.parameter("fc/kernel");
  const PretrainedWeights loaded =
      test.trainer().initialize_from({.path = reference("pretrained_float32"), .reset_head = true});
  EXPECT_EQ(loaded.uninitialized_head, "fc");
  EXPECT_EQ(test.parameter("fc/kernel"), kernel);
  EXPECT_THAT(test.parameter("fc/bias"), Each(0.0F));
  TestTrainer whole(residual_network());
  whole.trainer().initialize_from({.path = reference("pretrained_float32")});
  EXPECT_EQ(test.parameter("conv1/kernel"), whole.parameter("conv1/kernel"));
  EXPECT_EQ(test.parameter("layer4.1.bn2/gamma"), whole.parameter("layer4.1.bn2/gamma"));
}

TEST(Pretrained, AdvisesOnAnotherHead) {
  TestTrainer test(residual_network(4));
  EXPECT_EQ(
      test.init_error({.path = reference("pretrained_float32")}),
      fmt::format(
          "[init-from] expected the weights of resnet18 in {}, with PyTorch's names, got fc.weight "
          "[10, 16] instead of [4, 16], fc.bias [10] instead of [4]; --reset-head does not load "
          "fc; --partial loads the 100 tensors that fit",
          reference("pretrained_float32").string()));
}

// ---- Files that do not fit

TEST(Pretrained, ListsEveryMismatch) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  write_tensors(path, {{"dense.weight", {12, 15}},
                       {"dense_1.weight", {4, 12}},
                       {"dense_1.bias", {4}},
                       {"extra", {}}});
  TestTrainer test(plain_network());
  const std::string message = fmt::format(
      "[init-from] expected the weights of plain in {}, with PyTorch's names, got dense.weight "
      "[12, 15] instead of [12, 16], no dense.bias [12], unexpected extra []",
      path.string());
  EXPECT_EQ(test.init_error({.path = path}),
            message +
                "; if only a part of the file is wanted, --partial loads what fits, and the "
                "network does not compute what that of the file computes");
  EXPECT_EQ(test.init_error({.path = path, .reset_head = true}), message);
  EXPECT_EQ(test.init_error({.path = path, .reset_head = true, .partial = true}), message)
      << "nothing fits";
}

// ---- A part of a file, and other names

TEST(Pretrained, LoadsMatchingTensorsAndReportsTheRest) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  write_tensors(path, {{"dense.weight", {12, 15}},
                       {"dense_1.weight", {4, 12}},
                       {"dense_1.bias", {4}},
                       {"extra", {2}}});
  TestTrainer test(plain_network());
  const std::vector<float> kernel = test.parameter("dense/kernel");
  EXPECT_THAT(test.trainer().initialize_from({.path = path, .partial = true}).table,
              ElementsAre("loaded                       2  dense_1.weight, dense_1.bias",
                          "missing in the file          1  dense.bias [12]",
                          "unused in the file           1  extra [2]",
                          "of another shape or type     1  dense.weight [12, 15] instead of [12, "
                          "16]"));
  EXPECT_THAT(test.parameter("dense_1/bias"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(test.parameter("dense/kernel"), kernel);
  write_tensors(path, {{"dense.weight", {10, 4}}, {"dense.bias", {10}}});
  TestTrainer whole(zoo::linear({4}, 10));
  EXPECT_THAT(whole.trainer().initialize_from({.path = path, .partial = true}).table,
              Contains("missing in the file          0"));
}

TEST(Pretrained, RenamesTensorsOfTheFile) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  write_tensors(path, {{"module.net.dense.weight", {12, 16}},
                       {"module.net.dense.bias", {12}},
                       {"module.head.weight", {4, 12}},
                       {"module.head.bias", {4}}});
  TestTrainer test(plain_network());
  const NameMap head{"head.*", "dense_1.*"};
  test.trainer().initialize_from({.path = path, .map = {head, {"net.*", "*"}}});
  EXPECT_THAT(test.parameter("dense_1/bias"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(test.parameter("dense/bias").back(), 12);
  EXPECT_EQ(
      test.init_error({.path = path, .map = {head, {"nett.*", "*"}}}),
      fmt::format("[init-from] expected tensors named nett.* in {}, as the map of names says; "
                  "there are none",
                  path.string()));
  EXPECT_THAT(test.init_error({.path = path, .map = {{"head.bias", "dense.bias"}, {"net.*", "*"}}}),
              HasSubstr("expected one tensor of "));
  for (const char* rule : {"a", "=b", "a=", "a.*=b", "a=*", "*.*=*.*"})
    EXPECT_THAT(error_of([&] { NameMap::parse(rule); }),
                HasSubstr("[init-from] expected a map of names OLD=NEW, with one * in both or in "
                          "none, got \""))
        << rule;
}

TEST(Pretrained, NamesUnsupportedTypes) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  const std::vector<std::int64_t> integers(4);
  const std::vector<float> kernel(64);
  model::Network network({16}, "one");
  network.add(model::Dense({.units = 4}));
  checkpoint::write_safetensors(path,
                                std::vector<checkpoint::TensorView>{
                                    {"dense.weight", {4, 16}, std::span<const float>(kernel)},
                                    {"dense.bias", {4}, std::span<const std::int64_t>(integers)}});
  TestTrainer test(std::move(network));
  EXPECT_THAT(test.init_error({.path = path}),
              HasSubstr("got dense.bias of I64 instead of F32, BF16, F16, F64"));
}

TEST(Pretrained, ReportsAPathWithoutWeights) {
  const checkpoint::ScratchDirectory scratch;
  TestTrainer test(plain_network());
  EXPECT_EQ(test.init_error({.path = scratch.path()}),
            fmt::format("[init-from] expected a safetensors file, a checkpoint, or a directory of "
                        "checkpoints, got {}, which has none",
                        scratch.path().string()));
  EXPECT_THAT(test.init_error({.path = scratch.path() / "nowhere"}), HasSubstr("nowhere] "));
  const std::string zip = "PK\x03\x04" + std::string(22, '\1') + std::string("\x10\0\0\0", 4);
  checkpoint::overwrite(scratch.path() / "weights.pth", zip + "archive/data.pkl");
  EXPECT_THAT(
      test.init_error({.path = scratch.path() / "weights.pth"}),
      HasSubstr("weights.pth] expected a safetensors file, got a zip archive, as torch.save "
                "writes; in Python, safetensors.torch.save_file(model.state_dict(), "));
}

TEST(Pretrained, ListsTheFilesOfAFolder) {
  const checkpoint::ScratchDirectory scratch;
  TestTrainer test(plain_network());
  const std::string path = (scratch.path() / "a.safetensors").string();
  for (const auto& [bytes, name] :
       {std::pair{"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
                  "got a Git LFS pointer: git lfs pull fetches the file"},
        {"<!DOCTYPE html>\n<html></html>", "got an HTML page: the download failed"},
        {"{\"metadata\": {\"total_size\": 9}, \"weight_map\": {}}",
         "got JSON, such as the index of weights in several files: name one of these"}}) {
    checkpoint::overwrite(path, bytes);
    EXPECT_THAT(test.init_error({.path = path}),
                AllOf(HasSubstr("a.safetensors] expected a safetensors file, "), HasSubstr(name)));
  }
  EXPECT_THAT(test.init_error({.path = scratch.path()}),
              HasSubstr("which has none: name the file, " + path));
  checkpoint::overwrite(scratch.path() / "b.safetensors", "b");
  EXPECT_THAT(
      test.init_error({.path = scratch.path()}),
      HasSubstr("which has none, but 2 safetensors files: name one of them, such as " + path));
}

TEST(Pretrained, RemovesPrefixesOfWrappers) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  for (const std::string prefix : {"module.", "_orig_mod.", "_orig_mod.module."}) {
    write_tensors(path, {{prefix + "dense.weight", {10, 4}}, {prefix + "dense.bias", {10}}});
    TestTrainer test(zoo::linear({4}, 10));
    test.trainer().initialize_from({.path = path});
    EXPECT_EQ(test.parameter("dense/bias").back(), 10) << prefix;
    TestTrainer head(zoo::linear({4}, 3));
    head.trainer().initialize_from({.path = path, .reset_head = true});
  }
}

TEST(Pretrained, ListsAtMostTenDifferences) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  write_tensors(path, {{"dense.weight", {10, 4}}, {"dense.bias", {10}}});
  TestTrainer test(residual_network());
  const std::string message = test.init_error({.path = path});
  EXPECT_LT(message.size(), 1000U);
  EXPECT_THAT(message, ::testing::ContainsRegex(", and [0-9]+ more"));
}

TEST(Pretrained, NamesATensorThatIsNotFinite) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path path = scratch.path() / "weights.safetensors";
  const std::vector<float> kernel(40, 1.0F);
  std::vector<float> bias(10, 1.0F);
  bias[7] = std::numeric_limits<float>::quiet_NaN();
  checkpoint::write_safetensors(path, std::vector<checkpoint::TensorView>{
                                          {"dense.weight", {10, 4}, std::span<const float>(kernel)},
                                          {"dense.bias", {10}, std::span<const float>(bias)}});
  TestTrainer test(zoo::linear({4}, 10));
  EXPECT_THAT(test.init_error({.path = path}), HasSubstr("got NaN or infinity in dense.bias"));
}

// ---- ONNX

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

// ---- Our own checkpoints

FitOptions saving_to(const std::filesystem::path& directory, std::int64_t steps) {
  FitOptions fit{.epochs = 0, .steps = steps};
  fit.checkpoint.directory = directory;
  return fit;
}

TEST(Pretrained, AcceptsACheckpointByAnyOfItsPaths) {
  const checkpoint::ScratchDirectory scratch;
  const Outcome saved =
      train(1, normalized_network(), small_data().batch(40), {}, saving_to(scratch.path(), 3));
  const std::filesystem::path checkpoint = scratch.path() / "step-00000003";
  for (const std::filesystem::path& path :
       {scratch.path(), checkpoint, checkpoint / checkpoint::kModelFile}) {
    TestTrainer test(normalized_network(), 7);
    EXPECT_EQ(test.trainer().initialize_from({.path = path}).file,
              checkpoint / checkpoint::kModelFile);
    EXPECT_EQ(test.trainer().parameter_hash(), saved.parameter_hash) << path;
    const auto buffers = test.trainer().replicas()[0].model().buffers();
    EXPECT_EQ(std::vector<float>(buffers.begin(), buffers.end()), saved.buffers);
  }
  TestTrainer other(dropout_network());
  EXPECT_THAT(
      other.init_error({.path = checkpoint}),
      AllOf(HasSubstr("with Lockstep's names, got unexpected batch_normalization/beta [12]"),
            HasSubstr("unexpected batch_normalization/moving_mean [12]"),
            Not(HasSubstr("--reset-head"))));
}

TEST(Pretrained, FallsBackToAnUndamagedCheckpoint) {
  const checkpoint::ScratchDirectory scratch;
  train(1, plain_network(), small_data().batch(40), {}, saving_to(scratch.path(), 3));
  const Outcome saved =
      train(1, plain_network(), small_data().batch(40), {}, saving_to(scratch.path() / "other", 3));
  const std::filesystem::path newer = scratch.path() / "step-00000004";
  std::filesystem::copy(scratch.path() / "step-00000003", newer);
  std::string manifest = checkpoint::contents_of(newer / checkpoint::kManifestName);
  manifest.replace(manifest.find("\"step\": 3"), 9, "\"step\": 4");
  manifest.replace(manifest.find("\"sequence\": 1"), 13, "\"sequence\": 2");
  checkpoint::overwrite(newer / checkpoint::kManifestName, manifest);
  checkpoint::flip_bit(newer / checkpoint::kModelFile,
                       std::filesystem::file_size(newer / checkpoint::kModelFile) - 1);
  ASSERT_EQ(checkpoint::list_checkpoints(scratch.path()).front().path, newer);
  TestTrainer test(plain_network(), 7);
  EXPECT_EQ(test.trainer().initialize_from({.path = scratch.path()}).file,
            scratch.path() / "step-00000003" / checkpoint::kModelFile);
  EXPECT_EQ(test.trainer().parameter_hash(), saved.parameter_hash);
}

TEST(Pretrained, RejectsADamagedCheckpoint) {
  const checkpoint::ScratchDirectory scratch;
  train(1, plain_network(), small_data().batch(40), {}, saving_to(scratch.path(), 3));
  const std::filesystem::path file = scratch.path() / "step-00000003" / checkpoint::kModelFile;
  std::string bytes = checkpoint::contents_of(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  checkpoint::overwrite(file, bytes);
  TestTrainer test(plain_network());
  EXPECT_THAT(test.init_error({.path = scratch.path()}), HasSubstr("model.safetensors"));
}

// ---- In fit

/// Records the argument of on_train_begin.
class BeginRecorder final : public Callback {
 public:
  void on_train_begin(const TrainBegin& logs) override { begin = logs; }
  TrainBegin begin;
};

TEST(PretrainedFit, StartsWithTheWeights) {
  const checkpoint::ScratchDirectory scratch;
  const data::Dataset dataset = small_data().batch(40);
  train(1, plain_network(), dataset, {.schedule = {.peak = 0.03F}}, saving_to(scratch.path(), 30));
  const auto recorder = std::make_shared<BeginRecorder>();
  FitOptions fit{.epochs = 0,
                 .steps = 2,
                 .callbacks = {recorder},
                 .pretrained = Pretrained{.path = scratch.path()}};
  const Outcome plain = train(1, plain_network(), dataset, {}, {.epochs = 0, .steps = 2});
  const Outcome tuned = train(1, plain_network(), dataset, {}, fit);
  EXPECT_LT(tuned.losses.front(), 0.8 * plain.losses.front());
  EXPECT_EQ(recorder->begin.initialized_from,
            scratch.path() / "step-00000030" / checkpoint::kModelFile);
  EXPECT_EQ(recorder->begin.uninitialized_head, "");
  EXPECT_EQ(tuned.history.end.steps, 2) << "steps count anew";
  EXPECT_EQ(train(2, plain_network(), dataset, {}, fit).losses.size(), 2U);
}

TEST(PretrainedFit, IgnoresTheWeightsIfItResumes) {
  const checkpoint::ScratchDirectory scratch;
  const data::Dataset dataset = small_data().batch(40);
  FitOptions fit = saving_to(scratch.path(), 4);
  train(1, plain_network(), dataset, {}, fit);
  const auto recorder = std::make_shared<BeginRecorder>();
  fit.steps = 8;
  fit.callbacks = {recorder};
  fit.pretrained = Pretrained{.path = scratch.path() / "gone.safetensors"};
  const Outcome straight = train(1, plain_network(), dataset, {}, {.epochs = 0, .steps = 8});
  job::Session session(0, nullptr, {});
  OneDeviceStrategy strategy(session);
  ::testing::internal::CaptureStderr();
  const Outcome resumed = train(strategy, plain_network(), dataset, {}, fit);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(fmt::format("pretrained weights are ignored: the training resumes from {}",
                                    (scratch.path() / "step-00000004").string())));
  EXPECT_FALSE(recorder->begin.initialized_from.has_value());
  EXPECT_EQ(resumed.parameter_hash, straight.parameter_hash);
}

}  // namespace
}  // namespace lockstep::strategy
