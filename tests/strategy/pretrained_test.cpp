// Weights from files that fit in part or not at all, from Lockstep's checkpoints, and in fit.
#include "lockstep/train/options/pretrained.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/data/dataset.h"
#include "lockstep/job/session.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/options/fit_options.h"
#include "lockstep/train/trainer.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/pretrained.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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
            fmt::format("[init-from] expected a safetensors file, a checkpoint, a directory of "
                        "checkpoints, or a folder with model.safetensors or its index, got {}, "
                        "which has none",
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
         "got JSON, such as the index of several files, whose name ends with "
         ".safetensors.index.json"}}) {
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

// ---- Folders of model hubs

TEST(Pretrained, ReadsTheModelOfAFolder) {
  const checkpoint::ScratchDirectory scratch;
  checkpoint::overwrite(scratch.path() / "config.json", "{}");
  const std::filesystem::path model = scratch.path() / "model.safetensors";
  write_tensors(model, {{"dense.weight", {10, 4}}, {"dense.bias", {10}}});
  TestTrainer test(zoo::linear({4}, 10));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(test.trainer().initialize_from({.path = scratch.path()}).file, model);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(test.parameter("dense/bias").back(), 10);
}

TEST(Pretrained, ReadsSeveralFilesByTheirIndex) {
  const checkpoint::ScratchDirectory scratch;
  write_tensors(scratch.path() / "model-00001-of-00002.safetensors", {{"dense.weight", {12, 16}}});
  write_tensors(scratch.path() / "model-00002-of-00002.safetensors",
                {{"dense.bias", {12}}, {"dense_1.weight", {4, 12}}, {"dense_1.bias", {4}}});
  const std::filesystem::path index = scratch.path() / "model.safetensors.index.json";
  checkpoint::overwrite(index, R"({"metadata": {"total_size": 1024}, "weight_map": {
    "dense.weight": "model-00001-of-00002.safetensors",
    "dense.bias": "model-00002-of-00002.safetensors",
    "dense_1.weight": "model-00002-of-00002.safetensors",
    "dense_1.bias": "model-00002-of-00002.safetensors"}})");
  for (const std::filesystem::path& path : {scratch.path(), index}) {
    TestTrainer test(plain_network());
    EXPECT_EQ(test.trainer().initialize_from({.path = path}).file, index);
    EXPECT_EQ(test.parameter("dense/kernel").back(), 12 * 16);
    EXPECT_EQ(test.parameter("dense/bias").back(), 12);
    EXPECT_THAT(test.parameter("dense_1/bias"), ElementsAre(1, 2, 3, 4));
  }
  std::filesystem::remove(scratch.path() / "model-00002-of-00002.safetensors");
  EXPECT_THAT(TestTrainer(plain_network()).init_error({.path = index}),
              HasSubstr("model-00002-of-00002.safetensors] "));
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
}  // namespace lockstep::inline v0::train
