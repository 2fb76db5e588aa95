#include "lockstep/allreduce/transport/barrier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

void run_participants(std::vector<Barrier>& participants,
                      const std::function<void(Barrier&)>& body) {
  std::vector<std::thread> threads;
  for (Barrier& participant : participants) threads.emplace_back([&] { body(participant); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Barrier, PublishesEarlierWritesOfAllMembers) {
  for (const int members : {1, 2, 4, 9}) {
    std::vector<Barrier> participants = make_barrier_of_threads(members);
    std::vector<int> written(static_cast<std::size_t>(members),
                             -1);  // plain memory: the barrier alone orders it
    run_participants(participants, [&](Barrier& participant) {
      for (int round = 0; round < 500; ++round) {
        written[static_cast<std::size_t>(participant.member())] = round;
        participant.wait();
        for (const int value : written) ASSERT_EQ(value, round);
        participant.wait();
      }
    });
  }
}

TEST(Barrier, ExchangesDataOfEachMember) {
  std::vector<Barrier> participants = make_barrier_of_threads(3);
  run_participants(participants, [&](Barrier& participant) {
    for (std::uint64_t round = 0; round < 200; ++round) {
      const auto mine = static_cast<std::uint64_t>(participant.member()) * 1000 + round;
      std::memcpy(participant.next_note(), &mine, sizeof(mine));
      participant.exchange(Call::all_gather(mine), {.segment = mine, .offset = mine + 1});
      for (int member = 0; member < 3; ++member) {
        const auto theirs = static_cast<std::uint64_t>(member) * 1000 + round;
        std::uint64_t note = 0;
        std::memcpy(&note, participant.note(member), sizeof(note));
        ASSERT_EQ(note, theirs);
        ASSERT_EQ(participant.call(member).count, theirs);
        ASSERT_EQ(participant.place(member).segment, theirs);
        ASSERT_EQ(participant.place(member).offset, theirs + 1);
      }
    }
  });
}

TEST(Barrier, WakesSleepersWhenALateMemberArrives) {
  std::vector<Barrier> participants = make_barrier_of_threads(2);
  run_participants(participants, [](Barrier& participant) {
    for (int round = 0; round < 3; ++round) {
      // Long enough for the other one to fall asleep; the test does not require it.
      if (participant.member() == round % 2)
        std::this_thread::sleep_for(std::chrono::milliseconds(8));
      participant.wait();
    }
  });
}

TEST(Barrier, PollsTheGroupDuringALongWait) {
  const auto buffer =
      std::make_shared<device::Buffer>(device::HostAllocator().allocate(Barrier::bytes_for(2)));
  Barrier alone(std::shared_ptr<std::byte>(buffer, static_cast<std::byte*>(buffer->data())), 2, 0,
                {.poll_group = [] {
                  throw Error(ErrorCategory::communication, "test", "expected company", "got none");
                }});
  EXPECT_EQ(error_of([&] { alone.wait(); }), "[test] expected company, got none");
}

TEST(Barrier, FailsForWaitingAndArrivingMembers) {
  std::vector<Barrier> participants = make_barrier_of_threads(3, 10);
  run_participants(participants, [](Barrier& participant) {
    if (participant.member() == 0)
      participant.fail({"here", "expected all", "one left"});
    else
      EXPECT_EQ(error_of([&] { participant.wait(); }), "[here] expected all; one left");
    EXPECT_EQ(error_of([&] { participant.exchange(Call::barrier()); }),
              "[here] expected all; one left");
    participant.fail({"there", "a later failure", "does not count"});
    ASSERT_TRUE(participant.failure().has_value());
    EXPECT_EQ(participant.failure()->where, "here");
  });
}

TEST(Barrier, NamesMembersByTheirNumbers) {
  std::vector<Barrier> participants = make_barrier_of_threads(2, 10);
  run_participants(participants, [](Barrier& participant) {
    const Call call = participant.member() == 0 ? Call::barrier() : Call::any(true);
    EXPECT_EQ(error_of([&] { participant.exchange(call); }),
              "[barrier] expected the same call on all members; member 10 called barrier() and "
              "member 11 called any()");
  });
}

TEST(Barrier, TruncatesLongFailures) {
  std::vector<Barrier> participants = make_barrier_of_threads(1);
  participants[0].fail(
      {std::string(1000, 'w'), std::string(10'000, 'n'), std::string(10'000, 'g')});
  const std::optional<ErrorMessage> failure = participants[0].failure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->where, std::string(127, 'w'));
  EXPECT_EQ(failure->expected, std::string(1023, 'n'));
  EXPECT_EQ(failure->actual, std::string(2047, 'g'));
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
