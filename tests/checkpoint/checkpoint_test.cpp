// One rank: what is written, what is read back, which checkpoint is chosen, how many are kept.
#include "lockstep/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/directory.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class Checkpoint : public ::testing::Test {
 protected:
  CheckpointDirectory directory(int keep = 3) const {
    return {{path(), keep, std::chrono::milliseconds(0)}, alone()};
  }
  fs::path path() const { return scratch_.path() / "run"; }

  ScratchDirectory scratch_;
  SmallReplica replica_{1};
};

TEST_F(Checkpoint, HasTheFilesOfItsManifest) {
  const fs::path saved = directory().save(replica_.arrays(), at_step(1000));

  EXPECT_EQ(saved, path() / "step-00001000");
  EXPECT_THAT(names_in(path()), ElementsAre("step-00001000"));
  EXPECT_THAT(names_in(saved), UnorderedElementsAre("model.safetensors", "optimizer.safetensors",
                                                    "state.json", "MANIFEST.json"));
  const auto manifest = nlohmann::json::parse(contents_of(saved / "MANIFEST.json"));
  EXPECT_EQ(manifest["format"], 1);
  EXPECT_EQ(manifest["step"], 1000);
  EXPECT_EQ(manifest["epoch"], 10);
  ASSERT_EQ(manifest["files"].size(), 3u);
  for (const auto& file : manifest["files"]) {
    const FileDigest digest = digest_file(saved / file["name"].get<std::string>());
    EXPECT_EQ(file["bytes"], digest.bytes);
    EXPECT_EQ(file["xxh3_64"], hex16(digest.xxh3));
  }
}

TEST_F(Checkpoint, StoresTheTokenizerInAFile) {
  TrainingState state = at_step(1);
  state.tokenizer = std::make_shared<const std::string>("{\"\0\xff", 4);
  EXPECT_EQ(checkpoint_bytes(replica_.arrays(), state), checkpoint_bytes(replica_.arrays()) + 4);
  const fs::path saved = directory().save(replica_.arrays(), state);

  EXPECT_EQ(contents_of(saved / kTokenizerFile), *state.tokenizer);
  EXPECT_EQ(read_manifest(saved).files.back().name, kTokenizerFile);
  const auto restored = directory().restore(replica_.arrays());
  ASSERT_NE(restored->state.tokenizer, nullptr);
  EXPECT_EQ(*restored->state.tokenizer, *state.tokenizer);
  flip_bit(saved / kTokenizerFile, 3);
  EXPECT_THAT(checkpoint_error([&] { check_contents(saved, read_manifest(saved)); }),
              HasSubstr("step-00000001/tokenizer] expected checksum "));
  directory().save(replica_.arrays(), at_step(2));
  EXPECT_EQ(directory().restore(replica_.arrays())->state.tokenizer, nullptr);
}

TEST_F(Checkpoint, ProtectsTheTorchScriptFileFromOtherUsers) {
  TrainingState state = at_step(1);
  state.script = std::make_shared<const std::string>("PK\x03\x04 a program");
  EXPECT_EQ(checkpoint_bytes(replica_.arrays(), state),
            checkpoint_bytes(replica_.arrays()) + state.script->size());
  const mode_t before = ::umask(0);
  const fs::path saved = directory().save(replica_.arrays(), state);
  ::umask(before);
  EXPECT_EQ(read_manifest(saved).files.back(), digest_file(saved / kScriptFile));
  EXPECT_EQ(read_script(saved, false), *state.script);
  EXPECT_EQ(directory().restore(replica_.arrays())->state.script, nullptr) << "it is not followed";

  const std::string needed =
      "] expected a TorchScript file, which is a program, that only this user can write, or "
      "--trust-code to run what others wrote; ";
  const auto refusal = [&] { return checkpoint_error([&] { read_script(saved, false); }); };
  for (const fs::path& path : {saved, saved / kScriptFile}) {
    const mode_t mode = path == saved ? 0755 : 0644;
    ASSERT_EQ(::chmod(path.c_str(), mode | S_IWGRP), 0);
    EXPECT_EQ(refusal(), "[" + path.string() + needed + "its group may write it");
    ASSERT_EQ(::chmod(path.c_str(), mode | S_IWOTH), 0);
    EXPECT_EQ(refusal(), "[" + path.string() + needed + "every user may write it");
    EXPECT_EQ(read_script(saved, true), *state.script);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    if (::geteuid() != 0) continue;  // only root can change owners
    ASSERT_EQ(::chown(path.c_str(), 12345, static_cast<gid_t>(-1)), 0);
    EXPECT_EQ(refusal(), "[" + path.string() + needed + "it belongs to the user 12345");
    ASSERT_EQ(::chown(path.c_str(), 0, static_cast<gid_t>(-1)), 0);
  }
  EXPECT_EQ(read_script(saved, false), *state.script);
  fs::rename(saved / kScriptFile, path() / "elsewhere.pt");
  fs::create_symlink(path() / "elsewhere.pt", saved / kScriptFile);
  EXPECT_THAT(checkpoint_error([&] { read_script(saved, true); }),
              HasSubstr("script.pt] expected the TorchScript file of the checkpoint; "));
}

TEST_F(Checkpoint, NamesTensorsAfterParametersWithoutPadding) {
  const fs::path saved = directory().save(replica_.arrays(), at_step(1));

  const SafetensorsFile model(saved / kModelFile);
  ASSERT_EQ(model.tensors().size(), 4u);
  EXPECT_THAT(model.find("dense/kernel")->shape, ElementsAre(3, 5));
  EXPECT_THAT(model.find("scale")->shape, IsEmpty());
  EXPECT_NE(model.find("norm/moving_mean"), nullptr);
  EXPECT_EQ(model.metadata(), (TensorMetadata{{"epoch", "0"}, {"step", "1"}}));
  const SafetensorsFile optimizer(saved / kOptimizerFile);
  ASSERT_EQ(optimizer.tensors().size(), 6u);
  std::vector<float> slot(5);
  optimizer.read(*optimizer.find("v/dense/bias"), slot);
  EXPECT_THAT(slot, ElementsAre(3001, 3002, 3003, 3004, 3005));
}

TEST_F(Checkpoint, RoundTripsBitForBit) {
  TrainingState state = at_step(938);
  state.seed = 18'446'744'073'709'551'615u;
  state.precision = "bfloat16";
  state.loss_scale = 1.0 / 3;
  state.metrics = {{"loss", 0.1 + 0.2},
                   {"samples", 60000},
                   {"diverged", std::numeric_limits<double>::infinity()}};
  state.configuration = nlohmann::json::object({{"model", "cnn"}, {"learning_rate", 1e-3}});
  replica_.parameters()[0] = -0.0f;
  replica_.parameters()[1] = 1e-42f;
  directory().save(replica_.arrays(), state);

  SmallReplica fresh;
  CheckpointDirectory reading = directory();
  const auto restored = reading.restore(fresh.arrays());

  ASSERT_TRUE(restored.has_value());
  EXPECT_TRUE(fresh.holds_same_as(replica_));
  EXPECT_TRUE(std::signbit(fresh.parameters()[0]));
  EXPECT_EQ(restored->path, path() / "step-00000938");
  EXPECT_EQ(restored->state.step, 938);
  EXPECT_EQ(restored->state.epoch, 9);
  EXPECT_EQ(restored->state.seed, state.seed);
  EXPECT_EQ(restored->state.global_batch, 64);
  EXPECT_EQ(restored->state.precision, "bfloat16");
  EXPECT_EQ(restored->state.loss_scale, state.loss_scale);
  EXPECT_EQ(restored->state.metrics.at("loss"), 0.1 + 0.2);
  EXPECT_EQ(restored->state.metrics.at("samples"), 60000);
  EXPECT_TRUE(std::isnan(restored->state.metrics.at("diverged")));
  EXPECT_EQ(*restored->state.configuration, *state.configuration);
  EXPECT_THAT(reading.skipped(), IsEmpty());
}

TEST_F(Checkpoint, RestoresOnlyTheModelWithoutSlots) {
  directory().save(replica_.arrays(), at_step(1));
  SmallReplica fresh;
  ASSERT_TRUE(directory().restore(fresh.model_only()).has_value());
  EXPECT_EQ(fresh.parameters(), replica_.parameters());
  EXPECT_EQ(fresh.buffers(), replica_.buffers());
  EXPECT_EQ(fresh.m(), SmallReplica().m());
}

TEST_F(Checkpoint, SupportsModelsWithoutBuffersOrSlots) {
  ReplicaArrays bare = replica_.model_only();
  bare.buffer_table = nullptr;
  bare.buffers = {};
  const fs::path saved = directory().save(bare, at_step(1));
  EXPECT_EQ(SafetensorsFile(saved / kModelFile).tensors().size(), 3u);
  EXPECT_TRUE(SafetensorsFile(saved / kOptimizerFile).tensors().empty());
}

TEST_F(Checkpoint, KeepsTheNewest) {
  CheckpointDirectory checkpoints = directory(2);
  for (const int step : {10, 20, 30, 40}) checkpoints.save(replica_.arrays(), at_step(step));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000030", "step-00000040"));
}

TEST_F(Checkpoint, OfARestartedRunIsNewerThanLaterSteps) {
  directory(2).save(replica_.arrays(), at_step(100));
  directory(2).save(replica_.arrays(), at_step(200));
  SmallReplica again(7);
  directory(2).save(again.arrays(), at_step(50));

  EXPECT_THAT(names_in(path()), ElementsAre("step-00000050", "step-00000200"));
  SmallReplica fresh;
  EXPECT_EQ(directory().restore(fresh.arrays())->state.step, 50);
  EXPECT_TRUE(fresh.holds_same_as(again));
}

TEST_F(Checkpoint, OfTheSameStepIsReplaced) {
  directory().save(replica_.arrays(), at_step(5));
  SmallReplica again(7);
  directory().save(again.arrays(), at_step(5));

  EXPECT_THAT(names_in(path()), ElementsAre("step-00000005"));
  SmallReplica fresh;
  directory().restore(fresh.arrays());
  EXPECT_TRUE(fresh.holds_same_as(again));
}

TEST_F(Checkpoint, RestoreReturnsNothingWithoutCheckpoints) {
  SmallReplica fresh;
  EXPECT_FALSE(directory().restore(fresh.arrays()).has_value());
  EXPECT_EQ(checkpoint_error([&] { directory().restore(fresh.arrays(), Resume::require); }),
            fmt::format("[{}] expected a complete checkpoint; there is none", path().string()));
  EXPECT_FALSE(fs::exists(path())) << "looking for a checkpoint must not make a directory";
}

TEST_F(Checkpoint, IsIgnoredByResumeNever) {
  directory().save(replica_.arrays(), at_step(5));
  SmallReplica fresh;
  EXPECT_FALSE(directory().restore(fresh.arrays(), Resume::never).has_value());
  EXPECT_TRUE(fresh.holds_same_as(SmallReplica()));
}

TEST_F(Checkpoint, OfAnEarlierTrainingIsReplacedOnlyByOverwrite) {
  directory().save(replica_.arrays(), at_step(5),
                   {.best = BestMark{.metric = "accuracy", .value = 0.75}});
  {
    CheckpointDirectory other = directory();
    other.prepare(1);
    EXPECT_THAT(checkpoint_error([&] { other.start_over(false); }),
                HasSubstr("got one with 1 checkpoint, the newest step-00000005"));
  }
  directory().save(replica_.arrays(), at_step(9));
  CheckpointDirectory again = directory();
  again.prepare(1);
  EXPECT_EQ(checkpoint_error([&] { again.start_over(false); }),
            fmt::format("[{}] expected a directory without checkpoints for --resume never: use "
                        "another --checkpoint-dir, or --overwrite to replace what is in this one, "
                        "got one with 2 checkpoints, the newest step-00000009",
                        path().string()));
  again.start_over(true);
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000005", "step-00000009"))
      << "until there is another one";
  again.save(replica_.arrays(), at_step(2));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000002"));
  EXPECT_EQ(find_best(list_checkpoints(path())), nullptr);
  again.save(replica_.arrays(), at_step(4));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000002", "step-00000004"));
}

TEST_F(Checkpoint, OtherBestNamesTheBestIfTheNewestIsUsed) {
  const fs::path best = directory().save(replica_.arrays(), at_step(5),
                                         {.best = BestMark{.metric = "accuracy", .value = 0.75}});
  EXPECT_EQ(describe_best(path(), best), "");
  const fs::path newest = directory().save(replica_.arrays(), at_step(9));
  EXPECT_EQ(describe_best(path(), newest),
            fmt::format("{} is the newest checkpoint; the best one, with accuracy 0.75, is "
                        "step-00000005: {}:best",
                        newest.string(), path().string()));
  EXPECT_EQ(describe_best(newest, newest), "") << "which was named";
  EXPECT_EQ(describe_best(scratch_.path() / "none", newest), "");
}

TEST_F(Checkpoint, RecreatesARemovedDirectory) {
  CheckpointDirectory checkpoints = directory();
  checkpoints.save(replica_.arrays(), at_step(5));
  fs::remove_all(path());
  checkpoints.save(replica_.arrays(), at_step(9));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000009"));
  EXPECT_THAT(checkpoint_error([&] { directory().prepare(1); }),
              HasSubstr("expected exclusive use of the directory; process "))
      << "it is locked again";
  // Only the lock is missing, as if all files were removed from the directory.
  fs::remove(path() / ".lock");
  checkpoints.save(replica_.arrays(), at_step(12));
  EXPECT_THAT(checkpoint_error([&] { directory().prepare(1); }), HasSubstr("exclusive use"));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000009", "step-00000012"));
}

TEST_F(Checkpoint, DoesNotWriteToADirectoryThatAnotherRunRecreated) {
  CheckpointDirectory checkpoints = directory();
  checkpoints.save(replica_.arrays(), at_step(5));
  fs::remove_all(path());
  CheckpointDirectory other = directory();
  other.save(replica_.arrays(), at_step(3));
  EXPECT_THAT(checkpoint_error([&] { checkpoints.save(replica_.arrays(), at_step(9)); }),
              HasSubstr("it was removed, and another run has created it again"));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000003"));
}

TEST_F(Checkpoint, OfAnotherModelNamesTheFirstDifference) {
  const fs::path saved = directory().save(replica_.arrays(), at_step(5));
  const auto refusal = [&](std::vector<model::ParameterInfo> parameters) {
    SmallReplica other(0, std::move(parameters));
    const SmallReplica before = other;
    std::string message = checkpoint_error([&] { directory().restore(other.arrays()); });
    EXPECT_TRUE(other.holds_same_as(before));
    return message;
  };
  auto parameters = SmallReplica::default_parameters();
  const std::string where =
      fmt::format("[{}] expected a checkpoint of this model with ", (saved / kModelFile).string());

  parameters[1].shape = {3, 6};
  EXPECT_EQ(refusal(parameters),
            where + "dense/kernel [3, 6]; the checkpoint has dense/kernel [3, 5]");
  parameters[1] = {"dense/matrix", {3, 5}, 0, 0, true, {}};
  EXPECT_EQ(refusal(parameters), where + "no dense/kernel; the checkpoint has dense/kernel [3, 5]");
  parameters[1] = {"dense/gamma", {5}, 0, 0, true, {}};
  EXPECT_EQ(refusal(parameters), where + "dense/gamma [5]; the checkpoint has no dense/gamma");
  parameters = SmallReplica::default_parameters();
  parameters.push_back({"zeta", {1}, 0, 0, true, {}});
  EXPECT_EQ(refusal(parameters), where + "zeta [1]; the checkpoint has no zeta");
  parameters.erase(parameters.begin() + 2, parameters.end());
  EXPECT_EQ(refusal(parameters), where + "no scale; the checkpoint has scale []");
}

TEST_F(Checkpoint, OfAnotherOptimizerIsRejected) {
  ReplicaArrays with_momentum = replica_.arrays();
  with_momentum.slots = {{"momentum", replica_.m()}};
  directory().save(with_momentum, at_step(5));
  SmallReplica fresh;
  EXPECT_THAT(
      checkpoint_error([&] { directory().restore(fresh.arrays()); }),
      HasSubstr(
          "optimizer.safetensors] expected a checkpoint of this model with m/dense/bias [5]; the "
          "checkpoint has no m/dense/bias"));
}

TEST_F(Checkpoint, ListsAllNewestFirst) {
  EXPECT_THAT(list_checkpoints(path()), IsEmpty());
  for (const int step : {10, 20}) directory().save(replica_.arrays(), at_step(step));
  fs::create_directory(path() / "step-00000003");
  fs::create_directory(path() / "step-later");
  overwrite(path() / "step-00000004", "a file");

  const std::vector<CheckpointInfo> found = list_checkpoints(path());

  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].step, 3);
  EXPECT_THAT(found[0].damage, HasSubstr("step-00000003/MANIFEST.json] expected a file that can be "
                                         "read; No such file or directory"));
  EXPECT_EQ(found[1].step, 20);
  EXPECT_TRUE(found[1].complete());
  EXPECT_EQ(found[2].step, 10);
  EXPECT_LT(found[2].sequence, found[1].sequence);
  EXPECT_EQ(found[1].bytes, fs::file_size(found[1].path / kModelFile) +
                                fs::file_size(found[1].path / kOptimizerFile) +
                                fs::file_size(found[1].path / kStateFile));
}

TEST_F(Checkpoint, IsRestoredByItsPath) {
  for (const int step : {10, 20}) directory().save(replica_.arrays(), at_step(step));
  const fs::path copied = scratch_.path() / "best";
  fs::copy(path() / "step-00000010", copied);
  for (const fs::path& one : {path() / "step-00000010", path() / "step-00000010" / "", copied}) {
    SmallReplica fresh;
    EXPECT_TRUE(is_checkpoint(one));
    const auto restored =
        CheckpointDirectory({one}, alone()).restore(fresh.arrays(), Resume::require);
    EXPECT_EQ(restored->path, one);
    EXPECT_EQ(restored->state.step, 10);
    EXPECT_TRUE(fresh.holds_same_as(replica_));
  }
  EXPECT_FALSE(is_checkpoint(path()));
  flip_bit(copied / kModelFile, 200);
  EXPECT_THAT(checkpoint_error([&] {
                CheckpointDirectory({copied}, alone()).restore(replica_.arrays(), Resume::require);
              }),
              HasSubstr("best] expected a complete checkpoint; 1 damaged, the newest: ["));
}

TEST_F(Checkpoint, CannotContainOtherCheckpoints) {
  const fs::path saved = directory().save(replica_.arrays(), at_step(10));
  EXPECT_EQ(checkpoint_error([&] { CheckpointDirectory({saved}, alone()).prepare(1); }),
            fmt::format("[{}] expected a directory for checkpoints; it is a checkpoint itself",
                        saved.string()));
  const fs::path named = scratch_.path() / "step-1";
  EXPECT_THAT(checkpoint_error([&] { CheckpointDirectory({named}, alone()).prepare(1); }),
              HasSubstr("step-1] expected another name than that of a checkpoint, step-NUMBER"));
  EXPECT_FALSE(fs::exists(named));
}

TEST_F(Checkpoint, IgnoresDanglingLinks) {
  directory().save(replica_.arrays(), at_step(10));
  fs::create_symlink("step-00000011", path() / "step-00000011");
  EXPECT_EQ(list_checkpoints(path()).size(), 1U);
  directory(1).save(replica_.arrays(), at_step(12));
  EXPECT_THAT(names_in(path()), UnorderedElementsAre("step-00000011", "step-00000012"));
}

TEST_F(Checkpoint, BytesIsAnUpperBound) {
  const fs::path saved = directory().save(replica_.arrays(), at_step(5));
  std::uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(saved)) bytes += file.file_size();
  EXPECT_GE(checkpoint_bytes(replica_.arrays()), bytes);
}

TEST_F(Checkpoint, RejectsAnInvalidState) {
  EXPECT_THAT(checkpoint_error([] { parse_training_state("{}", "state.json"); }),
              HasSubstr("[state.json] expected the state of a training run; it has no \"step\""));
  EXPECT_THAT(checkpoint_error([] { parse_training_state("[]", "state.json"); }),
              HasSubstr("expected the state of a training run; it is an array of 0"));
  EXPECT_THAT(checkpoint_error([] { parse_training_state(R"({"step": "a"})", "state.json"); }),
              HasSubstr("expected the state of a training run; its \"step\" is \"a\""));
  EXPECT_THAT(checkpoint_error([] { parse_training_state("step", "state.json"); }),
              HasSubstr("[state.json] expected JSON, got "));
}

TEST_F(Checkpoint, KeepsAnyBytesInItsConfiguration) {
  const nlohmann::json strings = {
      "", "plain 100%", "d\xff/t.csv", "percent-encoded:%41", "\xe2\x82\xac", "\xe2\x82%", "a\nb"};
  TrainingState state = at_step(8);
  (*state.configuration)["options"] = strings;
  (*state.configuration)["deep"]["er"] = "\x80";
  const std::string text = to_json_text(state);
  EXPECT_EQ(*parse_training_state(text, "state.json").configuration, *state.configuration);
  EXPECT_THAT(text, HasSubstr(R"("percent-encoded:d%FF/t.csv")"));
  EXPECT_THAT(text, HasSubstr(R"("plain 100%")"));
  EXPECT_THAT(text, HasSubstr("\"\xe2\x82\xac\""));
}

TEST(VerifyCheckpoint, ParsesItsNames) {
  EXPECT_EQ(parse_name<VerifyCheckpoint>("verify-checkpoint", "auto"), VerifyCheckpoint::automatic);
  EXPECT_EQ(parse_name<VerifyCheckpoint>("verify-checkpoint", "full"), VerifyCheckpoint::full);
  EXPECT_EQ(parse_name<VerifyCheckpoint>("verify-checkpoint", "hash"), VerifyCheckpoint::hash);
  EXPECT_EQ(parse_name<VerifyCheckpoint>("verify-checkpoint", "none"), VerifyCheckpoint::none);
  try {
    parse_name<VerifyCheckpoint>("verify-checkpoint", "some");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_STREQ(error.what(),
                 "[verify-checkpoint] expected auto, full, hash or none, got \"some\"");
  }
}

TEST(Resume, ParsesItsNames) {
  EXPECT_EQ(parse_name<Resume>("resume", "auto"), Resume::automatic);
  EXPECT_EQ(parse_name<Resume>("resume", "never"), Resume::never);
  EXPECT_EQ(parse_name<Resume>("resume", "require"), Resume::require);
  try {
    parse_name<Resume>("resume", "always");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_STREQ(error.what(), "[resume] expected auto, never or require, got \"always\"");
  }
}

TEST(Keep, IsAtLeastOne) {
  try {
    const CheckpointDirectory directory({"run", 0}, alone());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_STREQ(error.what(), "[--keep] expected at least 1 checkpoint to keep, got 0");
  }
}

TEST(Configuration, HasValueSemantics) {
  Configuration first;
  EXPECT_EQ(first->dump(), "{}");
  Configuration second = first;
  (*second)["model"] = "cnn";
  EXPECT_EQ(first->dump(), "{}");
  first = second;
  (*second)["model"] = "mlp";
  EXPECT_EQ(first->dump(), R"({"model":"cnn"})");
}

}  // namespace
}  // namespace lockstep::inline v0::checkpoint
