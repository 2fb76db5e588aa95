// The examples that wrap an existing training loop, in one process and under mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/apps/program.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::DoubleNear;
using ::testing::MatchesRegex;
using ::testing::Pointwise;

std::vector<std::string> example(const std::string& name) {
  return {std::string(LOCKSTEP_EXAMPLES "/example_") + name};
}

TEST(WrapEigenExample, LossesDoNotDependOnRanks) {
  const Result alone = run(example("wrap_eigen"));
  EXPECT_EQ(alone.status, 0) << alone.errors;
  EXPECT_THAT(
      alone.output,
      MatchesRegex(
          "step 20: loss 0.9[0-9]+ of 100 samples\nstep 40: loss 0.6[0-9]+ of 100 samples\n"));
  for (const int ranks : {2, 3}) {
    const Result together = run(mpirun(ranks, example("wrap_eigen")));
    EXPECT_EQ(together.status, 0) << together.errors;
    EXPECT_EQ(together.output, alone.output);
  }
}

TEST(TwoOutputsExample, MetricsDoNotDependOnRanks) {
  std::vector<std::string> command = example("two_outputs");
  command.emplace_back("2");  // epochs
  const auto metrics_of = [](const Result& result) {
    EXPECT_EQ(result.status, 0) << result.errors;
    std::istringstream lines(result.output);
    std::vector<double> values;
    std::string name;
    for (double value = 0; lines >> name >> value;) values.push_back(value);
    EXPECT_EQ(values.size(), 4U) << result.output;
    return values;
  };
  EXPECT_THAT(metrics_of(run(mpirun(3, command))),
              Pointwise(DoubleNear(1e-5), metrics_of(run(command))));
}

TEST(RawPointersExample, ResultDoesNotDependOnRanks) {
  EXPECT_EQ(run(example("raw_pointers")).output, "y = 3.0000 x -1.0000, from 1 rank\n");
  const Result three = run(mpirun(3, example("raw_pointers")));
  EXPECT_EQ(three.status, 0) << three.errors;
  EXPECT_EQ(three.output, "y = 3.0000 x -1.0000, from 3 ranks\n");
}

}  // namespace
}  // namespace lockstep::inline v0::apps
