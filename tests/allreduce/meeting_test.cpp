#include "lockstep/allreduce/transport/barrier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"
#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

void run_seats(std::vector<Meeting>& seats, const std::function<void(Meeting&)>& body) {
  std::vector<std::thread> threads;
  for (Meeting& seat : seats) threads.emplace_back([&] { body(seat); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Meeting, ShowsWhatTheOthersDidBefore) {
  for (const int members : {1, 2, 4, 9}) {
    std::vector<Meeting> seats = make_meeting_of_threads(members);
    std::vector<int> written(static_cast<std::size_t>(members), -1);  // plain memory: the meeting alone orders it
    run_seats(seats, [&](Meeting& seat) {
      for (int round = 0; round < 500; ++round) {
        written[static_cast<std::size_t>(seat.member())] = round;
        seat.wait();
        for (const int value : written) ASSERT_EQ(value, round);
        seat.wait();
      }
    });
  }
}

TEST(Meeting, ShowsWhatEachMemberBrought) {
  std::vector<Meeting> seats = make_meeting_of_threads(3);
  run_seats(seats, [&](Meeting& seat) {
    for (std::uint64_t round = 0; round < 200; ++round) {
      const auto mine = static_cast<std::uint64_t>(seat.member()) * 1000 + round;
      std::memcpy(seat.next_note(), &mine, sizeof(mine));
      seat.meet(Call::all_gather(mine), {.segment = mine, .offset = mine + 1});
      for (int member = 0; member < 3; ++member) {
        const auto theirs = static_cast<std::uint64_t>(member) * 1000 + round;
        std::uint64_t note = 0;
        std::memcpy(&note, seat.note(member), sizeof(note));
        ASSERT_EQ(note, theirs);
        ASSERT_EQ(seat.call(member).count, theirs);
        ASSERT_EQ(seat.place(member).segment, theirs);
        ASSERT_EQ(seat.place(member).offset, theirs + 1);
      }
    }
  });
}

TEST(Meeting, WakesThoseWhoSleepWhenAMemberIsLate) {
  std::vector<Meeting> seats = make_meeting_of_threads(2);
  run_seats(seats, [](Meeting& seat) {
    for (int round = 0; round < 3; ++round) {
      // Long enough for the other to fall asleep; the test holds whether it does or not.
      if (seat.member() == round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(8));
      seat.wait();
    }
  });
}

TEST(Meeting, LooksAroundDuringALongWait) {
  const auto buffer = std::make_shared<device::Buffer>(device::HostAllocator().allocate(Meeting::bytes_for(2)));
  Meeting alone(std::shared_ptr<std::byte>(buffer, static_cast<std::byte*>(buffer->data())), 2, 0, {.look_around = [] {
                  throw Error(ErrorCategory::communication, "test", "needed company", "got none");
                }});
  EXPECT_EQ(error_of([&] { alone.wait(); }), "[test] needed company; got none");
}

TEST(Meeting, FailsForThoseWhoWaitAndThoseWhoCome) {
  std::vector<Meeting> seats = make_meeting_of_threads(3, 10);
  run_seats(seats, [](Meeting& seat) {
    if (seat.member() == 0)
      seat.fail({"here", "needed all", "one left"});
    else
      EXPECT_EQ(error_of([&] { seat.wait(); }), "[here] needed all; one left");
    EXPECT_EQ(error_of([&] { seat.meet(Call::barrier()); }), "[here] needed all; one left");
    seat.fail({"there", "a later failure", "does not count"});
    ASSERT_TRUE(seat.failure().has_value());
    EXPECT_EQ(seat.failure()->where, "here");
  });
}

TEST(Meeting, NamesMembersByTheirNumbers) {
  std::vector<Meeting> seats = make_meeting_of_threads(2, 10);
  run_seats(seats, [](Meeting& seat) {
    const Call call = seat.member() == 0 ? Call::barrier() : Call::any(true);
    EXPECT_EQ(error_of([&] { seat.meet(call); }),
              "[barrier] needed the same call on all members; member 10 called barrier() and member 11 called any()");
  });
}

TEST(Meeting, CutsAFailureThatIsTooLong) {
  std::vector<Meeting> seats = make_meeting_of_threads(1);
  seats[0].fail({std::string(1000, 'w'), std::string(10'000, 'n'), std::string(10'000, 'g')});
  const std::optional<Failure> failure = seats[0].failure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->where, std::string(127, 'w'));
  EXPECT_EQ(failure->needed, std::string(1023, 'n'));
  EXPECT_EQ(failure->given, std::string(2047, 'g'));
}

}  // namespace
}  // namespace lockstep::allreduce
