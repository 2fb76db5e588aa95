#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/apps/program.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(VersionCommand, ListsLibrariesAsJson) {
  const Result result = run_lockstep("version --json");
  EXPECT_EQ(result.status, 0);
  const auto versions = result.events().front();
  for (const char* library : {"mpi", "onednn", "cuda", "cudnn", "nccl"}) {
    EXPECT_NE(versions[library].value("built", ""), "") << library;
    EXPECT_NE(versions[library].value("loaded", ""), "") << library;
  }
  EXPECT_THAT(run_lockstep("version").output, ::testing::StartsWith("lockstep "));
}

TEST(VersionOption, PrintsVersionAlone) {
  const Result result = run_lockstep("--version");
  EXPECT_EQ(result.status, 0) << result.errors;
  const std::string version =
      run_lockstep("version --json").events().front()["version"].get<std::string>();
  EXPECT_EQ(result.output, "lockstep " + version + "\n");
}

// The dynamic loader logs its searches on standard error.
std::string loaded_by(const std::string& arguments) {
  std::vector<std::string> command = lockstep(arguments);
  command.insert(command.begin(), {"env", "LD_DEBUG=libs"});
  const Result result = run(command);
  EXPECT_EQ(result.status, 0) << result.errors;
  return result.errors;
}

TEST(GpuLibraries, AreNotLoadedOnCpu) {
  const std::string loaded =
      loaded_by("train --model linear --data synthetic:2x2x1,2,8 --steps 2 --devices cpu:0");
  EXPECT_THAT(loaded, HasSubstr("find library=libdnnl"));
  for (const char* library : {"libcudnn", "libcublas", "libnccl"})
    EXPECT_THAT(loaded, Not(HasSubstr("library=" + std::string(library))));
}

TEST(GpuLibraries, ReportVersionsIfBuiltIn) {
  const auto versions = run_lockstep("version --json").events().front();
  const std::string loaded = loaded_by("version");
  for (const std::string library : {"cudnn", "nccl"}) {
    const auto built = versions[library]["built"].get<std::string>();
    const bool is_built = built != "absent";
    EXPECT_THAT(built, ::testing::MatchesRegex(is_built ? "[0-9]+\\.[0-9]+\\.[0-9]+" : "absent"));
    EXPECT_EQ(loaded.find("library=lib" + library) != std::string::npos, is_built) << library;
    const auto found = versions[library]["loaded"].get<std::string>();
    if (found == "absent") continue;
    EXPECT_EQ(found.substr(0, found.find('.')), built.substr(0, built.find('.'))) << library;
  }
}

TEST(HelpOption, HasStatusZero) {
  for (const char* command :
       {"", "train ", "evaluate ", "predict ", "data ", "checkpoint ", "doctor ", "version "}) {
    const Result result = run_lockstep(std::string(command) + "--help");
    EXPECT_EQ(result.status, 0) << command;
    EXPECT_THAT(result.output, HasSubstr("Usage: lockstep")) << command;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
