#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "apps/lockstep/allreduce_bench/reduction_timing.h"
#include "tests/apps/program.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kThree = "allreduce-bench --devices cpu:0,cpu:0,cpu:0 --iterations 2 ";

std::vector<std::size_t> sizes_of(const Result& result) {
  std::vector<std::size_t> sizes;
  for (const auto& row : result.events()) sizes.push_back(row["bytes"]);
  return sizes;
}

TEST(AllreduceBench, PrintsObjectPerSizeAndRoute) {
  const Result result = run_lockstep(
      kThree +
      "--allreduce in-process,auto --min-bytes 1024 --max-bytes 16KiB --factor 4 --json --check");
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(sizes_of(result), ElementsAre(1024, 1024, 4096, 4096, 16384, 16384));
  const auto rows = result.events();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["route"], i % 2 == 0 ? "in-process" : "auto");
    EXPECT_EQ(rows[i]["carrier"], "in-process");
    EXPECT_EQ(rows[i]["dtype"], "float32");
    EXPECT_EQ(rows[i]["world_size"], 3);
    EXPECT_EQ(rows[i]["ranks"], 1);
    EXPECT_EQ(rows[i]["nodes"], 1);
    EXPECT_EQ(rows[i]["errors"], 0);
    EXPECT_EQ(rows[i]["iterations"], 2);
    EXPECT_GE(rows[i]["calls_per_iteration"], 1);
    const double microseconds = rows[i]["microseconds"];
    EXPECT_GE(microseconds, rows[i]["best_microseconds"].get<double>());
    const double algorithm = rows[i]["bytes"].get<double>() / microseconds / 1e3;
    EXPECT_NEAR(rows[i]["algorithm_gb_per_second"].get<double>(), algorithm, 1e-6 * algorithm);
    EXPECT_NEAR(rows[i]["bus_gb_per_second"].get<double>(), algorithm * 4 / 3, 1e-6 * algorithm);
  }
}

TEST(AllreduceBench, PrintsATable) {
  const Result result = run_lockstep(kThree + "--min-bytes 1MiB --max-bytes 1MiB --dtype int64");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(result.output,
              StartsWith("all-reduce of int64, sum, in place: 3 replicas on 1 rank, 1 node\n"
                         "     bytes  route "));
  EXPECT_THAT(result.output,
              ContainsRegex("\n   1048576  auto: in-process +[0-9.]+ +[0-9.]+ +[0-9.]+ +-\n$"));
  EXPECT_EQ(std::ranges::count(result.output, '\n'), 3);
}

TEST(AllreduceBench, ChoosesNumberOfIterations) {
  const Result result =
      run_lockstep("allreduce-bench --devices cpu:0,cpu:0 --min-bytes 64 --max-bytes 64 --json");
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto row = result.events().front();
  EXPECT_GE(row["iterations"], 3);
  EXPECT_LE(row["iterations"], 500);
  EXPECT_FALSE(row.contains("errors"));
}

TEST(AllreduceBench, PrintsHelp) {
  const Result result = run_lockstep("allreduce-bench --help");
  EXPECT_EQ(result.status, 0);
  for (const char* option : {"--min-bytes", "--max-bytes", "--factor", "--dtype", "--allreduce",
                             "--iterations", "--check", "--json", "--devices"})
    EXPECT_THAT(result.output, HasSubstr(option));
}

class TypedAllreduceBench : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Types, TypedAllreduceBench, ::testing::ValuesIn(element_type_names()));

TEST_P(TypedAllreduceBench, ComputesCorrectSums) {
  const std::string dtype(GetParam());
  const Result result = run_lockstep(
      kThree + "--check --json --min-bytes 1 --max-bytes 100001 --factor 10 --dtype " + dtype);
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto rows = result.events();
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_THAT(rows.front()["bytes"], ::testing::AnyOf(2, 4, 8));  // one element
  for (const auto& row : rows) {
    EXPECT_EQ(row["dtype"], dtype);
    EXPECT_EQ(row["errors"], 0);
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
