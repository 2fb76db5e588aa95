// A trace of several hosts: one clock for all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/cluster/hosts.h"

namespace lockstep::inline v0::apps {
namespace {

class TraceOnHosts : public HostsTest {};

constexpr double kRoundingMicroseconds = 0.002;

TEST_F(TraceOnHosts, NestsSpansAndHasNoCollectiveThatEndsBeforeItBegins) {
  const checkpoint::ScratchDirectory scratch;
  const std::filesystem::path file = scratch.path() / "trace.json";
  const Result result = run(cluster({"run", "--hosts", "3", "--name", name()},
                                    "train --model mlp --data synthetic:8x8x1,4,1003 "
                                    "--global-batch 100 --steps 9 --trace " +
                                        file.string() + ":steps=4-6"));
  ASSERT_EQ(result.status, 0) << result.errors;
  std::smatch uncertainty;
  ASSERT_TRUE(std::regex_search(result.errors, uncertainty,
                                std::regex("clocks of its hosts agree within ([0-9.]+) us")))
      << result.errors;
  EXPECT_GT(std::stod(uncertainty[1]), 0);

  std::ifstream in(file);
  const nlohmann::json trace = nlohmann::json::parse(in);
  std::map<std::int64_t, std::vector<std::pair<double, double>>> spans_by_collective;
  std::map<std::int64_t, std::vector<double>> ends;  // ends of open spans, by thread
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    const double end = begin + event["dur"].get<double>();
    if (event["name"] == "all_reduce")
      spans_by_collective[event["args"]["collective"]].emplace_back(begin, end);
    std::vector<double>& around = ends[event["tid"]];
    while (!around.empty() && around.back() <= begin + kRoundingMicroseconds) around.pop_back();
    if (!around.empty()) {
      EXPECT_LE(end, around.back() + kRoundingMicroseconds) << event;
    }
    around.push_back(end);
  }
  std::size_t whole = 0;
  for (const auto& [number, spans] : spans_by_collective) {
    if (spans.size() < 3) continue;  // truncated at the beginning or the end
    ++whole;
    const double last_begin = std::ranges::max_element(spans)->first;
    for (const auto& [begin, end] : spans)
      EXPECT_GE(end, last_begin - kRoundingMicroseconds) << number;
  }
  EXPECT_GE(whole, 3U);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
