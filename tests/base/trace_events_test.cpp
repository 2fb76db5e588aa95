#include "lockstep/base/trace/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lockstep::inline v0::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Runs `body` in a new thread of this name.
template <typename Body>
void run_thread(const char* name, Body body) {
  std::thread([&] {
    name_thread(name);
    body();
  }).join();
}

/// The recorded events of the thread called `name`; empty if there is none.
ThreadEvents events_of_thread(std::string_view name, const std::vector<ThreadEvents>& all) {
  const auto found = std::ranges::find(all, name, &ThreadEvents::thread);
  return found == all.end() ? ThreadEvents{} : *found;
}

std::vector<std::string> texts(const std::vector<Event>& events) {
  std::vector<std::string> all;
  for (const Event& event : events)
    all.push_back(std::string(to_string(event.kind)) + " " + event.name);
  return all;
}

TEST(TraceEvents, AreThoseOfEachThreadInOrder) {
  run_thread("of spans", [] {
    const Span outer("outer", 3);
    lap("first");
    lap("second");
    end_lap();
  });
  const ThreadEvents thread = events_of_thread("of spans", recorded_events());
  EXPECT_THAT(texts(thread.events),
              ElementsAre("begin outer", "lap first", "lap second", "lap ", "end outer"));
  EXPECT_TRUE(std::ranges::is_sorted(thread.events, {}, &Event::time));
  EXPECT_EQ(thread.lost, 0U);
}

TEST(TraceEvents, KeepNumbersStepsAndSequences) {
  run_thread("of numbers", [] {
    set_step(123'456'789'012);
    record(EventKind::begin, "bucket", 8'000'000, 36'028'797'018'963'968);
    record(EventKind::end, "bucket", -1);
    set_step(0);
  });
  const std::vector<Event> events = events_of_thread("of numbers", recorded_events()).events;
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].number, 8'000'000);
  EXPECT_EQ(events[0].sequence, 36'028'797'018'963'968U);
  EXPECT_EQ(events[0].step, 123'456'789'012);
  EXPECT_EQ(events[1].number, -1);
  EXPECT_EQ(events[1].sequence, 0U);
}

TEST(TraceEvents, AreTheLastOnesOfAFullRing) {
  constexpr int kRecorded = 3 * static_cast<int>(kRingEvents) + 7;
  run_thread("of a full ring", [] {
    for (int i = 0; i < kRecorded; ++i) record(EventKind::mark, "mark", i);
  });
  const ThreadEvents thread = events_of_thread("of a full ring", recorded_events());
  EXPECT_EQ(thread.recorded, static_cast<std::uint64_t>(kRecorded));
  ASSERT_GE(thread.events.size(), kRingEvents - 1);
  EXPECT_EQ(thread.lost + thread.events.size(), thread.recorded);
  EXPECT_EQ(thread.events.back().number, kRecorded - 1);
  EXPECT_EQ(thread.events.front().number, static_cast<std::int32_t>(thread.lost));
}

TEST(TraceEvents, ContinueTheRingOfAnEndedThreadOfTheSameName) {
  run_thread("of two threads", [] { record(EventKind::mark, "first"); });
  const std::size_t rings = recorded_events().size();
  run_thread("of two threads", [] { record(EventKind::mark, "second"); });
  EXPECT_EQ(recorded_events().size(), rings);
  EXPECT_THAT(texts(events_of_thread("of two threads", recorded_events()).events),
              ElementsAre("mark first", "mark second"));
}

TEST(TraceEvents, AreSeparateForConcurrentThreadsOfOneName) {
  run_thread("of one name", [] {
    record(EventKind::mark, "outer");
    run_thread("of one name", [] { record(EventKind::mark, "inner"); });
  });
  const std::vector<ThreadEvents> all = recorded_events();
  EXPECT_THAT(texts(events_of_thread("of one name", all).events), ElementsAre("mark outer"));
  EXPECT_THAT(texts(events_of_thread("of one name #2", all).events), ElementsAre("mark inner"));
}

TEST(TraceEvents, AreConsistentDuringConcurrentRecording) {
  std::atomic<bool> stops = false;
  std::thread writer([&] {
    name_thread("of a race");
    for (int i = 0; !stops; i = (i + 1) % 1'000'000) {
      set_step(i);
      record(EventKind::mark, "race", i, static_cast<std::uint64_t>(i));
    }
  });
  constexpr int kReads = 200;
  std::size_t seen = 0;
  for (int read = 0; read < kReads || seen == 0; ++read) {
    const std::vector<Event> events = events_of_thread("of a race", recorded_events()).events;
    seen += events.size();
    for (std::size_t i = 0; i < events.size(); ++i) {
      ASSERT_EQ(events[i].step, events[i].number);
      ASSERT_EQ(events[i].sequence, static_cast<std::uint64_t>(events[i].number));
      if (i > 0) {
        ASSERT_EQ(events[i].number, (events[i - 1].number + 1) % 1'000'000);
      }
    }
  }
  stops = true;
  writer.join();
  set_step(0);
}

TEST(TraceCollector, CollectsEachEventOnce) {
  record(EventKind::mark, "before");
  Collector collector;
  EXPECT_EQ(collector.size(), 0U);
  run_thread("of a collection", [&] {
    for (int i = 0; i < 5; ++i) {
      record(EventKind::mark, "collected", i);
      collector.collect();
    }
  });
  collector.collect();
  const ThreadEvents thread = events_of_thread("of a collection", collector.threads());
  ASSERT_THAT(thread.events, SizeIs(5));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(thread.events[static_cast<std::size_t>(i)].number, i);
  EXPECT_EQ(collector.size(), 5U);
}

TEST(TraceCollector, CountsOverwrittenEvents) {
  Collector collector;
  run_thread("of a late collection", [] {
    for (std::size_t i = 0; i < 2 * kRingEvents; ++i) record(EventKind::mark, "mark");
  });
  collector.collect();
  const ThreadEvents thread = events_of_thread("of a late collection", collector.threads());
  EXPECT_GE(thread.lost, kRingEvents);
  EXPECT_EQ(thread.lost + thread.events.size(), 2 * kRingEvents);
}

TEST(TraceNames, AreTheSameForTheSameText) {
  const std::string text = "conv1 forward";
  EXPECT_EQ(intern(text), intern(std::string_view("conv1 forward, and more").substr(0, 13)));
  EXPECT_STREQ(intern(text), "conv1 forward");
}

TEST(TraceNames, HaveALimit) {
  const auto exceed = [] {  // runs in a separate process, because names are never removed
    for (int i = 0; i < 20'000; ++i) intern("name " + std::to_string(i));
    std::_Exit(intern("one more name") == std::string_view("(more names)") ? 0 : 1);
  };
  EXPECT_EXIT(exceed(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep::inline v0::trace
