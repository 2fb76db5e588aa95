// lockstep allreduce-bench on the ranks that mpirun started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/apps/program.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kBench =
    "allreduce-bench --min-bytes 1 --max-bytes 1MiB --factor 1000 --iterations 2 --check --json ";

std::vector<std::string> routes_of(const Result& result) {
  std::vector<std::string> routes;
  for (const auto& row : result.events()) routes.push_back(row["route"]);
  return routes;
}

void expect_right_sums(const Result& result, int replicas, int ranks) {
  ASSERT_EQ(result.status, 0) << result.errors;
  for (const auto& row : result.events()) {
    EXPECT_EQ(row["errors"], 0) << row;
    EXPECT_EQ(row["world_size"], replicas);
    EXPECT_EQ(row["ranks"], ranks);
    EXPECT_EQ(row["nodes"], 1);
    EXPECT_EQ(row["iterations"], 2);
  }
}

TEST(MpirunAllreduceBench, InterleavesRoutes) {
  const Result result = run(mpirun(2, kBench + "--allreduce mpi,shared-memory,ring"));
  expect_right_sums(result, 2, 2);
  EXPECT_THAT(routes_of(result),
              ::testing::ElementsAre("mpi", "shared-memory", "ring", "mpi", "shared-memory", "ring",
                                     "mpi", "shared-memory", "ring"));
  for (const auto& row : result.events()) EXPECT_EQ(row["carrier"], row["route"]);
}

TEST(MpirunAllreduceBench, ReducesOverReplicasOfAllRanks) {
  const Result result = run(mpirun(3, kBench + "--allreduce mpi,auto --devices cpu:0,cpu:0"));
  expect_right_sums(result, 6, 3);
  EXPECT_EQ(routes_of(result).size(), 6U);
  EXPECT_EQ(result.events().front()["carrier"], "in-process + mpi");
}

TEST(MpirunAllreduceBench, ReducesTypesUnknownToMpi) {
  for (const char* type : {"float16", "bfloat16"})
    expect_right_sums(run(mpirun(2, kBench + "--allreduce mpi,ring --dtype " + type)), 2, 2);
}

TEST(MpirunAllreduceBench, PrintsOneTable) {
  const Result result =
      run(mpirun(2, "allreduce-bench --min-bytes 4KiB --max-bytes 4KiB --allreduce mpi"));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output,
              StartsWith("all-reduce of float32, sum, in place: 2 replicas on 2 ranks, 1 node\n"));
  EXPECT_EQ(std::ranges::count(result.output, '\n'), 3);
}

TEST(MpirunAllreduceBench, RejectsRoutesThatDoNotConnectRanks) {
  const Result result = run(mpirun(2, kBench + "--allreduce in-process"));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("lockstep: error: [--allreduce] expected auto, "));
  EXPECT_EQ(result.errors.find("lockstep: error: "), result.errors.rfind("lockstep: error: "));
  EXPECT_EQ(result.output, "");
}

}  // namespace
}  // namespace lockstep::inline v0::apps
