#include "lockstep/train/step/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

#include "tests/support/traced_rank.h"

namespace lockstep::inline v0::train {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;
using trace::EventKind;
using trace::RankTrace;
using trace::traced_rank;

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

TEST(TraceWriter, ChoosesTheFormatByTheNameOfTheFile) {
  for (const auto& [file, begin] :
       {std::pair{"trace.json", "{\"displayTimeUnit\""}, std::pair{"trace.pftrace", "\x0a"}}) {
    std::string bytes;
    trace_writer(file)(std::vector{traced_rank()}, [&](std::string_view piece) { bytes += piece; });
    EXPECT_THAT(bytes, StartsWith(begin)) << file;
  }
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
}  // namespace lockstep::inline v0::train
