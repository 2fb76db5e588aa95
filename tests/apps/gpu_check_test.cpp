// scripts/gpu_check and scripts/gpu_pack without a GPU, and with invalid arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <sstream>

#include "tests/apps/program.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

std::string script(const std::string& name) { return LOCKSTEP_SOURCE_DIR "/scripts/" + name; }

// Expects exactly one line on standard error.
void expect_no_gpu(const Result& result, const std::string& reason) {
  EXPECT_EQ(result.status, 5);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors, "scripts/gpu_check: error: needs a GPU; " + reason +
                               ". docs/gpu.md lists what has not run on one\n");
}

TEST(GpuCheck, ReportsMissingGpuInOneLine) {
  expect_no_gpu(run({"env", "CUDA_VISIBLE_DEVICES=", script("gpu_check")}),
                "CUDA_VISIBLE_DEVICES is '', which hides all of them");
  expect_no_gpu(run({"env", "CUDA_VISIBLE_DEVICES=-1", script("gpu_check"), "--quick"}),
                "CUDA_VISIBLE_DEVICES is '-1', which hides all of them");
}

TEST(GpuCheck, ReportsDriverError) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("lockstep-gpu-check-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto with_driver = [&](const std::string& answer) {
    const std::string tool = (folder / "nvidia-smi").string();
    EXPECT_EQ(run({"sh", "-c",
                   "printf '#!/bin/sh\\n" + answer + "\\n' >" + tool + " && chmod +x " + tool})
                  .status,
              0);
    return run({"env", "-u", "CUDA_VISIBLE_DEVICES", "sh", "-c",
                "PATH=" + folder.string() + ":$PATH exec " + script("gpu_check")});
  };
  expect_no_gpu(with_driver("echo no communication; exit 9"), "nvidia-smi says: no communication");
  expect_no_gpu(with_driver("exit 0"), "nvidia-smi lists none");
  std::filesystem::remove_all(folder);
}

TEST(GpuCheck, PrintsHelp) {
  const Result result = run({script("gpu_check"), "--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, StartsWith("Checks everything that needs a GPU"));
  EXPECT_THAT(result.output, HasSubstr("Exit status: 0"));
}

struct ScriptRefusal {
  std::string command;
  std::string message;
};

std::ostream& operator<<(std::ostream& out, const ScriptRefusal& refusal) {
  return out << refusal.command;
}

class GpuScripts : public ::testing::TestWithParam<ScriptRefusal> {};

TEST_P(GpuScripts, RejectUnknownArguments) {
  std::istringstream stream(script(GetParam().command));
  const Result result = run(Words(std::istream_iterator<std::string>(stream), {}));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, EndsWith(GetParam().message + "\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Arguments, GpuScripts,
    ::testing::Values(
        ScriptRefusal{"gpu_check --fast",
                      "scripts/gpu_check: error: unknown option '--fast'; scripts/gpu_check --help "
                      "lists them"},
        ScriptRefusal{"gpu_check --out", "scripts/gpu_check: error: --out needs a folder"},
        ScriptRefusal{
            "gpu_check --only tests,speed",
            "scripts/gpu_check: error: --only: expected some of "
            "tests,resnet50,conv,torch,attention,cifar,adam,cnn,trainings,memcheck,racecheck,jpeg, "
            "got 'speed'"},
        ScriptRefusal{"gpu_check --prebuilt /dev",
                      "scripts/gpu_check: error: --prebuilt: expected a folder that "
                      "scripts/gpu_pack --prebuilt made, got '/dev'"},
        ScriptRefusal{"gpu_check --cache /absent",
                      "scripts/gpu_check: error: --cache: expected a file, got '/absent'"},
        ScriptRefusal{
            "gpu_check --minutes 0",
            "scripts/gpu_check: error: --minutes: expected a whole number above 0, got '0'"},
        ScriptRefusal{
            "gpu_pack --all",
            "scripts/gpu_pack: error: unknown option '--all'; scripts/gpu_pack --help lists them"},
        ScriptRefusal{"gpu_pack --out", "scripts/gpu_pack: error: --out needs a folder"}),
    [](const auto& test) { return "Case" + std::to_string(test.index); });

}  // namespace
}  // namespace lockstep::inline v0::apps
