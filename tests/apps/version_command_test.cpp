#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/apps/program.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;

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

TEST(HelpOption, IsNoError) {
  for (const char* command : {"", "train ", "evaluate ", "predict ", "data ", "checkpoint ", "version "}) {
    const Result result = run_lockstep(std::string(command) + "--help");
    EXPECT_EQ(result.status, 0) << command;
    EXPECT_THAT(result.output, HasSubstr("Usage: lockstep")) << command;
  }
}

}  // namespace
}  // namespace lockstep::apps
