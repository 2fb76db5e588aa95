#include "apps/lockstep/commands.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using checkpoint::checkpoint_error;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class CheckpointCommand : public ::testing::Test {
 protected:
  CheckpointCommand() {
    checkpoint::SmallReplica replica(1);
    checkpoint::TrainingState state = checkpoint::at_step(10);
    state.metrics["loss"] = 0.25;
    for (state.step = 10; state.step <= 20; state.step += 10)
      checkpoint::CheckpointDirectory({directory()}, checkpoint::alone())
          .save(replica.arrays(), state);
  }

  fs::path directory() const { return scratch_.path() / "run"; }
  fs::path newest() const { return directory() / "step-00000020"; }

  /// Returns the output of `lockstep checkpoint ARGUMENTS`, even if it throws.
  std::string run(std::vector<std::string> arguments) {
    out_.str("");
    CLI::App program;
    add_checkpoint_command(program, out_);
    arguments.insert(arguments.begin(), "checkpoint");
    std::reverse(arguments.begin(), arguments.end());
    program.parse(arguments);
    return out_.str();
  }

  checkpoint::ScratchDirectory scratch_;
  std::ostringstream out_;
};

TEST_F(CheckpointCommand, InspectListsDirectory) {
  fs::remove(directory() / "step-00000010" / checkpoint::kStateFile);
  const std::string out = run({"inspect", directory().string()});
  EXPECT_THAT(out, HasSubstr("checkpoint             step   epoch          bytes  state\n"));
  EXPECT_THAT(out, ::testing::ContainsRegex("step-00000020 +20 +0 +[0-9]+  complete\nstep-00000010 "
                                            "+10 +0 +[0-9]+  \\[.*state.json\\] expected"));
}

TEST_F(CheckpointCommand, ReportsAndSkipsUnhealthyCheckpoints) {
  checkpoint::Manifest manifest = checkpoint::read_manifest(newest());
  manifest.healthy = false;
  checkpoint::write_manifest(newest(), manifest);
  EXPECT_THAT(run({"inspect", directory().string()}), HasSubstr("  complete, not healthy\n"));
  EXPECT_THAT(run({"inspect", directory().string(), "--json"}), HasSubstr(R"("healthy":false)"));
  const fs::path output = scratch_.path() / "model.safetensors";
  EXPECT_THAT(run({"export", directory().string(), "--output", output.string()}),
              HasSubstr("step-00000010"));
}

TEST_F(CheckpointCommand, ShowsAndSelectsBest) {
  const fs::path best = directory() / "step-00000010";
  checkpoint::Manifest manifest = checkpoint::read_manifest(best);
  manifest.best = checkpoint::BestMark{"validation_loss", 0.25};
  checkpoint::write_manifest(best, manifest);
  EXPECT_THAT(run({"inspect", directory().string()}),
              HasSubstr("  complete, best: validation_loss 0.25\n"));
  EXPECT_THAT(run({"inspect", directory().string(), "--json"}),
              HasSubstr(R"("best":{"metric":"validation_loss","value":0.25})"));
  EXPECT_EQ(run({"verify", directory().string() + ":best"}),
            fmt::format("{}: intact\n", best.string()));
}

TEST_F(CheckpointCommand, InspectListsDirectoryAsJson) {
  std::istringstream lines(run({"inspect", directory().string(), "--json"}));
  std::string line;
  std::getline(lines, line);
  const auto first = nlohmann::json::parse(line);
  EXPECT_EQ(first["path"], newest().string());
  EXPECT_EQ(first["step"], 20);
  EXPECT_EQ(first["complete"], true);
  EXPECT_FALSE(first.contains("damage"));
}

TEST_F(CheckpointCommand, InspectShowsOne) {
  const std::string out = run({"inspect", newest().string()});
  EXPECT_THAT(
      out, HasSubstr("step-00000020: step 20, epoch 0, seed 1, global batch 64, float32\n  loss = "
                     "0.25\nmodel.safetensors: 4 tensors\n"));
  EXPECT_THAT(out, ::testing::ContainsRegex("dense/kernel +F32 +\\[3, 5\\] +60 bytes\n"));
  EXPECT_THAT(out, ::testing::ContainsRegex("v/scale +F32 +\\[\\] +4 bytes\n"));
}

TEST_F(CheckpointCommand, InspectShowsOneAsJson) {
  std::istringstream lines(run({"inspect", newest().string(), "--json"}));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line)["step"], 20);
  int tensors = 0;
  while (std::getline(lines, line)) {
    EXPECT_EQ(nlohmann::json::parse(line)["type"], "F32");
    ++tensors;
  }
  EXPECT_EQ(tensors, 10);
}

TEST_F(CheckpointCommand, VerifyReadsEverything) {
  EXPECT_EQ(run({"verify", directory().string()}),
            fmt::format("{}: intact\n{}: intact\n", newest().string(),
                        (directory() / "step-00000010").string()));
  checkpoint::flip_bit(newest() / checkpoint::kModelFile,
                       fs::file_size(newest() / checkpoint::kModelFile) - 1);
  EXPECT_EQ(
      checkpoint_error([&] {
        run({"verify", directory().string()});
      }),
      fmt::format("[{}] expected intact checkpoints; 1 of 2 are damaged", directory().string()));
  EXPECT_THAT(out_.str(), StartsWith(fmt::format("{}: [{}] expected checksum ", newest().string(),
                                                 (newest() / checkpoint::kModelFile).string())));
  EXPECT_EQ(run({"verify", (directory() / "step-00000010").string(), "--json"}),
            fmt::format("{{\"path\":\"{}\",\"sound\":true}}\n",
                        (directory() / "step-00000010").string()));
  EXPECT_THAT(checkpoint_error([&] {
                run({"verify", newest().string(), "--json"});
              }),
              HasSubstr("1 of 1 are damaged"));
  EXPECT_THAT(out_.str(), HasSubstr("\"sound\":false,\"damage\":\"["));
}

TEST_F(CheckpointCommand, ExportWritesNewestModel) {
  const fs::path file = scratch_.path() / "model.safetensors";
  const std::string out = run({"export", directory().string(), "--output", file.string()});
  EXPECT_EQ(checkpoint::contents_of(file),
            checkpoint::contents_of(newest() / checkpoint::kModelFile));
  EXPECT_EQ(out, fmt::format("{}: {} bytes from {}\n", file.string(), fs::file_size(file),
                             newest().string()));
}

TEST_F(CheckpointCommand, ExportRejectsDamagedCheckpoint) {
  const fs::path file = scratch_.path() / "model.safetensors";
  checkpoint::flip_bit(newest() / checkpoint::kModelFile, 100);
  EXPECT_THAT(checkpoint_error([&] {
                run({"export", directory().string(), "--output", file.string()});
              }),
              HasSubstr("expected checksum"));
  EXPECT_FALSE(fs::exists(file));
  fs::remove(newest() / checkpoint::kManifestName);
  run({"export", directory().string(), "--output", file.string()});
  EXPECT_EQ(checkpoint::contents_of(file),
            checkpoint::contents_of(directory() / "step-00000010" / checkpoint::kModelFile));
  fs::remove(directory() / "step-00000010" / checkpoint::kManifestName);
  EXPECT_THAT(checkpoint_error([&] {
                run({"export", directory().string(), "--output", file.string()});
              }),
              HasSubstr("expected a complete checkpoint; ["));
}

TEST_F(CheckpointCommand, ExportToOtherFormatsRequiresNetwork) {
  for (const char* const name : {"model.onnx", "model.pt"}) {
    const fs::path file = scratch_.path() / name;
    EXPECT_THAT(checkpoint_error([&] {
                  run({"export", directory().string(), "--output", file.string()});
                }),
                HasSubstr("expected a checkpoint that describes its network"));
    EXPECT_FALSE(fs::exists(file));
  }
}

TEST_F(CheckpointCommand, ExportAcceptsFormatForAnyExtension) {
  const fs::path file = scratch_.path() / "model.bin";
  run({"export", directory().string(), "--output", file.string(), "--format", "safetensors"});
  EXPECT_EQ(checkpoint::contents_of(file),
            checkpoint::contents_of(newest() / checkpoint::kModelFile));
}

TEST_F(CheckpointCommand, RejectsDirectoryWithoutCheckpoints) {
  const std::string needed = fmt::format(
      "[{}] expected a checkpoint, or a directory of checkpoints; ", scratch_.path().string());
  for (const char* action : {"inspect", "verify"})
    EXPECT_EQ(checkpoint_error([&] {
                run({action, scratch_.path().string()});
              }),
              needed + "there is none in it");
  EXPECT_THAT(checkpoint_error([&] {
                run({"inspect", "/nowhere"});
              }),
              MatchesRegex("\\[/nowhere\\] expected a checkpoint, or a directory of checkpoints; "
                           "it does not exist"));
}

TEST_F(CheckpointCommand, RequiresActionAndPath) {
  EXPECT_THROW(run({}), CLI::RequiredError);
  EXPECT_THROW(run({"verify"}), CLI::RequiredError);
  EXPECT_THROW(run({"export", directory().string()}), CLI::RequiredError);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
