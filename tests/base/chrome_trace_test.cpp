#include "lockstep/base/trace/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/support/traced_rank.h"

namespace lockstep::inline v0::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> texts_of(const std::vector<Slice>& slices) {
  std::vector<std::string> texts;
  for (const Slice& slice : slices)
    texts.push_back(std::to_string(slice.begin) + "-" + std::to_string(slice.end) + " " +
                    slice.name);
  return texts;
}

TEST(Slices, AreNestedAndOnTheCommonClock) {
  const RankTrace rank = traced_rank();
  EXPECT_THAT(texts_of(slices_of(rank, rank.threads[0])),
              ElementsAre("2000-8500 step", "2000-3000 conv1 forward", "3000-5000 conv2 forward",
                          "6000-7500 all_reduce", "8000-8000 point"));
  EXPECT_THAT(texts_of(slices_of(rank, rank.threads[1])),
              ElementsAre("4000-5000 cut", "5000-5000 off"));
}

TEST(RankTraceClock, IsInterpolatedBetweenTwoMeasurements) {
  const RankTrace rank{.clock = {{.time = 1'000'000, .offset = 100, .uncertainty = 3},
                                 {.time = 2'000'000, .offset = 200, .uncertainty = 5}},
                       .threads = {}};
  EXPECT_EQ(rank.on_common_clock(1'000'000), 1'000'000 - 100);
  EXPECT_EQ(rank.on_common_clock(1'500'000), 1'500'000 - 150);
  EXPECT_EQ(rank.on_common_clock(2'000'000), 2'000'000 - 200);
  EXPECT_EQ(rank.uncertainty(), 5);
}

/// A rank that is in collective 1 at this time of its own clock, measured as `offset` ahead.
RankTrace rank_in_collective(int rank, std::int64_t begin, std::int64_t end, std::int64_t offset,
                             std::int64_t uncertainty) {
  const auto event = [](std::int64_t time, EventKind kind) {
    return Event{.time = time, .name = "all_reduce", .kind = kind, .step = 5, .sequence = 1};
  };
  return {.rank = rank,
          .clock = {{.time = 0, .offset = offset, .uncertainty = uncertainty}},
          .threads = {{.thread = "reductions",
                       .events = {event(begin, EventKind::begin), event(end, EventKind::end)}}}};
}

Slice collective_of(const RankTrace& rank) { return slices_of(rank, rank.threads[0]).at(0); }

TEST(OrderCollectives, MovesClocksSoThatNoRankLeavesBeforeAllHaveEntered) {
  std::vector<RankTrace> ranks = {rank_in_collective(0, 1'000, 2'000, 0, 0),
                                  rank_in_collective(1, 1'100, 1'900, 0, 0),
                                  rank_in_collective(2, 52'060, 52'500, 50'000, 300),
                                  rank_in_collective(3, 52'050, 52'500, 50'000, 300)};
  order_collectives(ranks);
  for (const RankTrace& left : ranks)
    for (const RankTrace& entered : ranks)
      EXPECT_GE(collective_of(left).end, collective_of(entered).begin);
  EXPECT_EQ(collective_of(ranks[0]).begin, 1'000) << "its clock is the common one";
  EXPECT_EQ(collective_of(ranks[3]).begin, collective_of(ranks[2]).begin - 10) << "on one host";
  EXPECT_EQ(collective_of(ranks[2]).begin, 1'900);
  EXPECT_EQ(ranks[2].uncertainty(), 300 + 160);
}

TEST(OrderCollectives, KeepsConsistentClocks) {
  std::vector<RankTrace> ranks = {rank_in_collective(0, 1'000, 2'000, 0, 0),
                                  rank_in_collective(1, 51'500, 52'500, 50'000, 300)};
  order_collectives(ranks);
  EXPECT_EQ(ranks[1].clock[0].offset, 50'000);
  EXPECT_EQ(ranks[1].uncertainty(), 300);
}

TEST(OrderCollectives, MovesNoClockBeyondItsUncertainty) {
  std::vector<RankTrace> ranks = {rank_in_collective(0, 1'000, 2'000, 0, 0),
                                  rank_in_collective(1, 59'000, 59'500, 50'000, 300)};
  order_collectives(ranks);
  EXPECT_EQ(ranks[1].clock[0].offset, 50'300);
}

TEST(RankTracePack, RoundTrips) {
  const RankTrace rank = traced_rank();
  const RankTrace read = unpack(pack(rank));
  EXPECT_EQ(read.rank, 1);
  EXPECT_EQ(read.host, "h");
  EXPECT_EQ(read.process, 77);
  EXPECT_EQ(read.uncertainty(), 12);
  EXPECT_EQ(read.lost(), 2U);
  ASSERT_EQ(read.threads.size(), 2U);
  EXPECT_EQ(texts_of(slices_of(read, read.threads[0])), texts_of(slices_of(rank, rank.threads[0])));
  EXPECT_EQ(read.threads[0].events[5].number, 3);
  EXPECT_EQ(read.threads[0].events[5].sequence, 44U);
}

TEST(RankTracePack, RejectsTruncatedAndInvalidData) {
  const std::string packed = pack(traced_rank());
  EXPECT_THROW(unpack(packed.substr(0, packed.size() - 1)), Error);
  EXPECT_THROW(unpack("{}\n"), Error);
  EXPECT_THROW(unpack("no line"), Error);
}

TEST(ChromeTrace, HasASliceForEachPieceOfWork) {
  std::string text;
  const std::vector<RankTrace> ranks = {traced_rank()};
  write_chrome_trace(ranks, [&](std::string_view bytes) { text += bytes; });
  const nlohmann::json trace = nlohmann::json::parse(text);
  std::map<std::string, nlohmann::json> of_name;
  for (const nlohmann::json& event : trace["traceEvents"]) of_name[event["name"]] = event;
  EXPECT_EQ(of_name["all_reduce"]["ts"], 6.0);
  EXPECT_EQ(of_name["all_reduce"]["dur"], 1.5);
  EXPECT_EQ(of_name["all_reduce"]["args"]["number"], 3);
  EXPECT_EQ(of_name["all_reduce"]["args"]["collective"], 44);
  EXPECT_EQ(of_name["all_reduce"]["args"]["step"], 5);
  EXPECT_EQ(of_name["process_name"]["args"]["name"],
            "rank 1 on h, process 77, clock within 0.0 us");
  EXPECT_EQ(of_name["all_reduce"]["pid"], of_name["process_name"]["pid"]);
}

}  // namespace
}  // namespace lockstep::inline v0::trace
