// The program with a TorchScript file as its network: `lockstep train --model FILE.pt`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/script.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kRuns = "the code runs";

class TorchScript : public ::testing::Test {
 protected:
  TorchScript() { fs::create_directories(scratch_.path()); }

  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }

  /// A linear classifier of images [1, 8, 8] with 4 classes, whose weights are `weight`.
  std::string write_script(const std::string& name, double weight) const {
    ::torch::jit::Module script("Classifier");
    script.register_parameter("weight", ::torch::full({4, 64}, weight).requires_grad_(),
                              /*is_buffer=*/false);
    script.register_parameter("bias", ::torch::zeros({4}).requires_grad_(), /*is_buffer=*/false);
    script.define(
        "def forward(self, x):\n"
        "    return torch.matmul(torch.flatten(x, 1), torch.t(self.weight)) + self.bias\n");
    script.save(path(name));
    return path(name);
  }

  static Result train(const std::string& script, const std::string& options) {
    return run_lockstep("train --log-format json --log-every 1 --learning-rate 0.01 --model " +
                        script + kData + options);
  }

  checkpoint::ScratchDirectory scratch_;
};

/// The program in `folder`, with its plugin in the same folder or in `plugins`, if any.
std::string installed_program(const fs::path& folder, const fs::path& plugins) {
  const fs::path program = LOCKSTEP_PROGRAM;
  fs::create_directories(folder);
  fs::copy_file(program, folder / "lockstep");
  if (!plugins.empty()) {
    fs::create_directories(plugins);
    fs::create_symlink(program.parent_path() / "lockstep_torchscript.so",
                       plugins / "lockstep_torchscript.so");
  }
  return (folder / "lockstep").string();
}

TEST_F(TorchScript, TrainsResumesEvaluatesAndPredicts) {
  const std::string script = write_script("net.pt", 0.01);
  const Result straight = train(script, "--steps 20 --checkpoint-dir " + path("straight"));
  ASSERT_EQ(straight.status, 0) << straight.errors;
  EXPECT_LT(straight.losses().back(), straight.losses().front());
  EXPECT_EQ(straight.event("start")["parameters"], 4 * 64 + 4);

  const std::string run = " --checkpoint-dir " + path("run");
  ASSERT_EQ(train(script, "--steps 7" + run).status, 0);
  const Result resumed = train(script, "--steps 20" + run);
  ASSERT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_EQ(resumed.event("start")["first_step"], 7);
  EXPECT_EQ(hash_of(resumed), hash_of(straight));

  const std::string evaluate = "evaluate --log-format json --checkpoint " + path("run") + kData;
  const Result evaluated = run_lockstep(evaluate);
  ASSERT_EQ(evaluated.status, 0) << evaluated.errors;
  EXPECT_EQ(evaluated.event("evaluate")["step"], 20);
  EXPECT_EQ(evaluated.event("evaluate")["parameter_hash"], hash_of(straight));
  // Rank 1 receives the file from rank 0, which alone reads the checkpoint.
  const Result on_ranks = apps::run(mpirun(2, evaluate));
  ASSERT_EQ(on_ranks.status, 0) << on_ranks.errors;
  EXPECT_NEAR(on_ranks.event("evaluate")["loss"].get<double>(),
              evaluated.event("evaluate")["loss"].get<double>(), 1e-6);
  const Result predicted = run_lockstep(
      "predict --quiet --output - --outputs logits --checkpoint " + path("run") + kData);
  ASSERT_EQ(predicted.status, 0) << predicted.errors;
  EXPECT_EQ(numbers_of(predicted.output).size(), 1003U);

  const fs::path newest = path("run") + "/step-00000020";
  EXPECT_EQ(checkpoint::contents_of(newest / "script.pt"), checkpoint::contents_of(script));
  fs::rename(script, path("moved.pt"));
  write_script("net.pt", 0.03);  // a new file at the original path is ignored
  EXPECT_EQ(run_lockstep(evaluate).event("evaluate")["loss"], evaluated.event("evaluate")["loss"]);
  EXPECT_EQ(run_lockstep(evaluate + "--model " + path("moved.pt")).event("evaluate")["loss"],
            evaluated.event("evaluate")["loss"]);
  const Result other = run_lockstep(evaluate + "--model " + write_script("other.pt", 0.02));
  EXPECT_EQ(other.status, 3);
  EXPECT_THAT(other.errors, HasSubstr("[model] expected the TorchScript file of the training"));
  const Result another = train(path("other.pt"), "--steps 21" + run);
  EXPECT_EQ(another.status, 3);
  EXPECT_THAT(another.errors, HasSubstr(path("run") + "] expected the TorchScript file of its "
                                                      "checkpoints, xxh3 "));
}

TEST_F(TorchScript, OfACheckpointRunsOnlyIfTrusted) {
  // The script prints a line, which stands for arbitrary code.
  ::torch::jit::Module module("Loud");
  module.register_parameter("weight", ::torch::zeros({4, 64}).requires_grad_(), false);
  module.define(
      "def forward(self, x):\n"
      "    print('the code runs')\n"
      "    return torch.matmul(torch.flatten(x, 1), torch.t(self.weight))\n");
  const std::string script = path("loud.pt");
  module.save(script);
  ASSERT_EQ(train(script, "--steps 1 --checkpoint-dir " + path("run")).status, 0);
  const std::string checkpoint = path("run") + "/step-00000001";
  const auto evaluate = [&](const std::string& options) {
    return run_lockstep("evaluate --checkpoint " + path("run") + kData + options);
  };
  EXPECT_THAT(evaluate("").output, HasSubstr(kRuns));

  fs::permissions(checkpoint, fs::perms::others_write, fs::perm_options::add);
  for (const std::string& command :
       {"evaluate --checkpoint " + path("run") + kData,
        "predict --output - --checkpoint " + path("run") + kData,
        "checkpoint export " + path("run") + " --output " + path("out.pt")}) {
    const Result refused = run_lockstep(command);
    EXPECT_EQ(refused.status, 3) << command;
    EXPECT_THAT(refused.errors,
                HasSubstr(checkpoint + "] expected a TorchScript file, which is a program, that "
                                       "only this user can write, or --trust-code"));
    EXPECT_THAT(refused.output + refused.errors, Not(HasSubstr(kRuns)));
  }
  const Result inspected = run_lockstep("checkpoint inspect " + checkpoint);
  EXPECT_THAT(inspected.output, HasSubstr("  network loud.pt, a TorchScript file\n"));
  EXPECT_THAT(inspected.output, Not(HasSubstr(kRuns)));
  EXPECT_THAT(evaluate("--trust-code").output, HasSubstr(kRuns));
  EXPECT_THAT(evaluate("--model " + script).output, HasSubstr(kRuns));

  // Without its copy of the file, a checkpoint only has the path.
  fs::remove(checkpoint + "/script.pt");
  auto manifest = nlohmann::json::parse(checkpoint::contents_of(checkpoint + "/MANIFEST.json"));
  std::erase_if(manifest["files"].get_ref<nlohmann::json::array_t&>(),
                [](const nlohmann::json& file) { return file["name"] == "script.pt"; });
  checkpoint::overwrite(checkpoint + "/MANIFEST.json", manifest.dump());
  const Result named = evaluate("--trust-code");
  EXPECT_EQ(named.status, 3);
  EXPECT_THAT(named.errors,
              HasSubstr(checkpoint + "/script.pt] expected the TorchScript file of the "
                                     "checkpoint; No such file or directory"));
  EXPECT_THAT(named.output, Not(HasSubstr(kRuns)));
  EXPECT_THAT(evaluate("--model " + script).output, HasSubstr(kRuns));
  EXPECT_EQ(train(script, "--steps 2 --checkpoint-dir " + path("run")).status, 0);
}

TEST_F(TorchScript, OfAConfigurationFileRunsOnlyIfTrusted) {
  const std::string script = write_script("net.pt", 0.01);
  const std::string config = path("run.toml");
  checkpoint::overwrite(config, "steps = 1\nmodel = \"" + script + "\"\n");
  const std::string command = "train --quiet --checkpoint-dir none --config " + config + kData;
  EXPECT_EQ(run_lockstep(command).status, 0);
  fs::permissions(config, fs::perms::others_write, fs::perm_options::add);
  const Result refused = run_lockstep(command);
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.errors,
            "lockstep: error: [--config " + config +
                "] expected a TorchScript file, which is a program, on the command line (--model "
                "FILE.pt), or in a file that only this user can write; every user may write it\n");
  EXPECT_EQ(run_lockstep(command + "--model " + script).status, 0);
}

TEST_F(TorchScript, TrainsTwoReplicasLikeOne) {
  // Recognized by its content, independently of the name.
  const std::string script = write_script("archive", 0.01);
  const Result one = train(script, "--steps 5");
  const Result two = train(script, "--steps 5 --devices cpu:0,cpu:0");
  ASSERT_EQ(one.status, 0) << one.errors;
  ASSERT_EQ(two.status, 0) << two.errors;
  EXPECT_NEAR(one.losses().back(), two.losses().back(), 1e-5);
}

TEST_F(TorchScript, OnRanksIsTheSameFile) {
  const std::string here = write_script("here.pt", 0.01);
  const std::string there = write_script("there.pt", 0.02);
  const Result refused = run(
      mpirun(2, std::vector<std::string>{
                    "/bin/sh", "-c",
                    "case ${OMPI_COMM_WORLD_RANK-$PMI_RANK} in 1) set -- \"$@\" --model " + there +
                        ";; esac; exec \"$@\"",
                    "sh", LOCKSTEP_PROGRAM, "train", "--model", here, "--data",
                    "synthetic:8x8x1,4,100", "--global-batch", "20", "--checkpoint-dir", "none"}));
  EXPECT_EQ(refused.status, 2) << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("[ranks] expected the same TorchScript file on all ranks; "
                                        "rank 0 has xxh3 "));
}

TEST_F(TorchScript, TrainsWithThePluginInTheFolderOfAnInstallation) {
  const std::string script = write_script("net.pt", 0.01);
  const std::string options =
      " train --checkpoint-dir none --quiet --steps 1 --model " + script + kData;
  const auto status_of = [&](const std::string& program) {
    return run({"sh", "-c", "cd " + path("") + "; " + program + options});
  };
  const Result beside =
      status_of(installed_program(path("prefix/bin"), path("prefix/lib/lockstep")));
  EXPECT_EQ(beside.status, 0) << beside.errors;
  // A plugin in the working directory is ignored.
  fs::create_symlink(fs::path(LOCKSTEP_PROGRAM).parent_path() / "lockstep_torchscript.so",
                     path("lockstep_torchscript.so"));
  const Result absent = status_of(installed_program(path("alone/bin"), {}));
  EXPECT_EQ(absent.status, 2);
  EXPECT_EQ(
      absent.errors,
      fmt::format("lockstep: error: [model] expected the package lockstep-torch to be "
                  "installed, or a build with LibTorch (LOCKSTEP_TORCH=ON), for a TorchScript "
                  "file; there is no lockstep_torchscript.so in {0}/bin or "
                  "{0}/lib/lockstep\n",
                  fs::canonical(path("alone")).string()));
}

std::uint32_t crc32(const std::string& bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1U ? 0xedb88320U : 0U);
  }
  return ~crc;
}

/// `archive` with the version of its format replaced by 99.
std::string of_another_version(std::string archive) {
  constexpr std::size_t kHeader =
      30;  // header of a member before its name, extra bytes and contents
  const auto number_at = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(archive[at])) +
           static_cast<std::size_t>(static_cast<unsigned char>(archive[at + 1])) * 256;
  };
  const auto bytes_of = [](std::uint32_t number) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xffU);
    return bytes;
  };
  const std::size_t begin = archive.rfind("PK\x03\x04", archive.find("/version"));
  const std::size_t contents = begin + kHeader + number_at(begin + 26) + number_at(begin + 28);
  const std::size_t size = archive.find('\n', contents) + 1 - contents;
  const std::string before = bytes_of(crc32(archive.substr(contents, size)));
  const std::string after = std::string("99\n").substr(0, size);  // replaces "3\n" or "10\n"
  archive.replace(contents, size, after);
  for (std::size_t at = 0; (at = archive.find(before, at)) != std::string::npos; at += 4)
    archive.replace(at, 4, bytes_of(crc32(after)));
  return archive;
}

TEST_F(TorchScript, RejectsOtherFilesInOneLine) {
  const std::vector<char> tensors = ::torch::jit::pickle_save(::torch::ones({4, 64}));
  checkpoint::overwrite(path("state.pt"), std::string(tensors.begin(), tensors.end()));
  fs::create_directories(path("folder.pt"));
  const std::string whole = checkpoint::contents_of(write_script("net.pt", 0.01));
  checkpoint::overwrite(path("cut.pt"), whole.substr(0, whole.size() - 30));
  checkpoint::overwrite(path("newer.pt"), of_another_version(whole));
  struct Refusal {
    std::string name, error;
  };
  const std::vector<Refusal> refusals = {
      {"state.pt",
       "state.pt, which has no code: torch.save writes tensors, and a state_dict does "
       "not say what to compute"},
      {"folder.pt", "[model] expected a TorchScript file that can be read; "},
      {"cut.pt", "expected a TorchScript file for LibTorch " TORCH_VERSION "; LibTorch: "},
      {"newer.pt", "expected a TorchScript file for LibTorch " TORCH_VERSION
                   "; LibTorch: Attempted to read a PyTorch file with version 99"},
  };
  for (const Refusal& refusal : refusals) {
    const Result result = train(path(refusal.name), "--steps 1");
    EXPECT_EQ(result.status, 2) << refusal.name;
    EXPECT_THAT(result.errors, HasSubstr(refusal.error)) << refusal.name;
    EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
