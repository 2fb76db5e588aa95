#include "lockstep/base/trace/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Events of a thread: a step with laps and a collective, on a clock that is 1,000 ns ahead.
RankTrace traced_rank() {
  RankTrace rank{.rank = 1,
                 .host = "h",
                 .process = 77,
                 .clock = {{.time = 1'000, .offset = 1'000, .uncertainty = 12}},
                 .threads = {}};
  const auto event = [](std::int64_t time, EventKind kind, const char* name, int number = -1,
                        std::uint64_t sequence = 0) {
    return Event{.time = time,
                 .name = name,
                 .kind = kind,
                 .number = number,
                 .step = 5,
                 .sequence = sequence};
  };
  using enum EventKind;
  rank.threads.push_back(
      {.thread = "main",
       .recorded = 9,
       .lost = 2,
       .events = {event(2'000, end, "an earlier span"), event(3'000, begin, "step"),
                  event(3'000, lap, "conv1 forward"), event(4'000, lap, "conv2 forward"),
                  event(6'000, lap, ""), event(7'000, begin, "all_reduce", 3, 44),
                  event(8'500, end, "all_reduce", 3, 44), event(9'000, mark, "point"),
                  event(9'500, end, "step")}});
  rank.threads.push_back({.thread = "reductions",
                          .recorded = 2,
                          .events = {event(5'000, begin, "cut"), event(6'000, lap, "off")}});
  return rank;
}

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

TEST(PerfettoTrace, AllowsASpanWithoutAName) {
  std::string bytes;
  const std::vector<RankTrace> ranks = {
      {.clock = {},
       .threads = {{.thread = "main",
                    .events = {{.time = 1, .name = "", .kind = EventKind::begin},
                               {.time = 2, .name = "", .kind = EventKind::end}}}}}};
  write_perfetto_trace(ranks, [&](std::string_view piece) { bytes += piece; });
  EXPECT_FALSE(bytes.empty());
}

/// Each packet as "TYPE TIME NAME", by track.
TEST(PerfettoTrace, HasBeginAndEndEventsInOrder) {
  std::string bytes;
  const std::vector<RankTrace> ranks = {traced_rank()};
  write_perfetto_trace(ranks, [&](std::string_view piece) { bytes += piece; });
  std::map<std::uint64_t, std::string> names;
  std::map<std::uint64_t, std::vector<std::string>> of_track;
  for (protozero::pbf_reader trace(bytes); trace.next(1);) {
    protozero::pbf_reader packet = trace.get_message();
    std::uint64_t time = 0;
    while (packet.next()) {
      if (packet.tag() == 8) {
        time = packet.get_uint64();
      } else if (packet.tag() == 12) {
        protozero::pbf_reader interned = packet.get_message();
        while (interned.next(2)) {
          protozero::pbf_reader name = interned.get_message();
          name.next(1);
          const std::uint64_t number = name.get_uint64();
          name.next(2);
          names[number] = name.get_string();
        }
      } else if (packet.tag() == 11) {
        protozero::pbf_reader event = packet.get_message();
        std::string text;
        std::uint64_t track = 0;
        while (event.next()) {
          if (event.tag() == 9)
            text = std::to_string(event.get_enum()) + " " + std::to_string(time);
          else if (event.tag() == 10)
            text += " " + names[event.get_uint64()];
          else if (event.tag() == 11)
            track = event.get_uint64();
          else
            event.skip();
        }
        of_track[track].push_back(text);
      } else {
        packet.skip();
      }
    }
  }
  ASSERT_EQ(of_track.size(), 2U);
  EXPECT_THAT(of_track.begin()->second,
              ElementsAre("1 2000 step", "1 2000 conv1 forward", "2 3000", "1 3000 conv2 forward",
                          "2 5000", "1 6000 all_reduce", "2 7500", "3 8000 point", "2 8500"));
}

}  // namespace
}  // namespace lockstep::trace
