#include "lockstep/allreduce/letters/letter_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/allreduce/algorithm/message_group.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/error.h"
#include "tests/support/tcp_group.h"

namespace lockstep::inline v0::allreduce {
namespace {

using testing::HasSubstr;

/// A member with letters and collectives over the same connections.
struct Member {
  explicit Member(const std::shared_ptr<Transport>& transport)
      : group(make_ring(transport->duplicate())), letters(transport->duplicate()) {}

  Communicator group;
  LetterThread letters;
};

std::vector<std::unique_ptr<Member>> members(int count) {
  std::vector<std::unique_ptr<Member>> all;
  for (const auto& transport : connected_members(std::vector<int>(static_cast<std::size_t>(count))))
    all.push_back(std::make_unique<Member>(transport));
  return all;
}

std::vector<std::byte> bytes_of(int value, std::size_t size) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LetterThread, MovesLettersBesideCollectives) {
  const auto all = members(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Member& mine = *all[static_cast<std::size_t>(rank)];
      for (int round = 0; round < 100; ++round) {
        const std::size_t size = round % 3 == 0 ? 50'000 : 10;
        const auto sent = bytes_of(rank + round, size);
        auto received = bytes_of(0, size);
        std::vector<float> values(1000, 1);
        const auto in = mine.letters.receive((rank + 2) % 3, round, received);
        const auto out = mine.letters.send((rank + 1) % 3, round, sent);
        mine.group.all_reduce(std::span(values)).wait();
        mine.letters.wait(*out);
        mine.letters.wait(*in);
        EXPECT_EQ(received, bytes_of((rank + 2) % 3 + round, size));
        EXPECT_EQ(in->source, (rank + 2) % 3);
        EXPECT_EQ(values.front(), 3);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(LetterThread, MovesLettersWhileACollectiveWaits) {
  const auto all = members(2);
  std::vector<float> values(1000, 1);
  std::thread reduces([&] { all[0]->group.all_reduce(std::span(values)).wait(); });
  const auto sent = bytes_of(7, 100'000);
  auto received = bytes_of(0, 100'000);
  const auto out = all[0]->letters.send(1, 5, sent);
  const auto in = all[1]->letters.receive(kAnySource, 5, received);
  all[1]->letters.wait(*in);
  all[0]->letters.wait(*out);
  EXPECT_EQ(received, sent);
  std::vector<float> others(1000, 2);
  all[1]->group.all_reduce(std::span(others)).wait();
  reduces.join();
  EXPECT_EQ(values.back(), 3);
}

TEST(LetterThread, RefusesALetterThatDoesNotFitAtBothEnds) {
  const auto all = members(2);
  const auto sent = bytes_of(1, 40'000);
  auto received = bytes_of(0, 39'999);
  const auto out = all[0]->letters.send(1, 0, sent);
  const auto in = all[1]->letters.receive(0, 0, received);
  EXPECT_THAT(error_of([&] { all[1]->letters.wait(*in); }),
              HasSubstr("expected at most 39999 bytes of member 0; it sent 40000"));
  EXPECT_THAT(error_of([&] { all[0]->letters.wait(*out); }),
              HasSubstr("expected member 1 to receive 40000 bytes; it receives at most 39999"));
}

TEST(LetterThread, EndsAllLettersAfterAFailure) {
  const auto all = members(2);
  auto received = bytes_of(0, 10);
  const auto in = all[1]->letters.receive(0, 0, received);
  EXPECT_FALSE(all[1]->letters.test(*in));
  all[1]->letters.fail({"watchdog", "expected rank 0", "it is gone"});
  EXPECT_THAT(error_of([&] { all[1]->letters.wait(*in); }), HasSubstr("it is gone"));
  const auto late = all[1]->letters.receive(0, 0, received);
  EXPECT_THAT(error_of([&] { all[1]->letters.wait(*late); }), HasSubstr("it is gone"));
  EXPECT_THAT(error_of([&] { all[1]->letters.receive(1, 0, received); }),
              HasSubstr("expected another rank, from 0 to 1, got 1 on rank 1"));
  EXPECT_THAT(error_of([&] { all[0]->letters.send(2, 0, received); }),
              HasSubstr("expected another rank, from 0 to 1, got 2"));
}

TEST(LetterThread, SendsWhatWasStartedAndFailsTheRestAtItsEnd) {
  const auto all = members(2);
  const auto sent = bytes_of(1, 10);
  auto received = bytes_of(0, 10);
  const auto out = all[0]->letters.send(1, 0, sent);
  const auto never = all[0]->letters.receive(1, 0, received);
  all[0]->letters.end();
  all[0]->letters.wait(*out);
  EXPECT_THAT(error_of([&] { all[0]->letters.wait(*never); }), HasSubstr("the session has ended"));
  EXPECT_THAT(error_of([&] { all[0]->letters.send(1, 0, sent); }),
              HasSubstr("the session has ended"));
  all[1]->letters.wait(*all[1]->letters.receive(0, 0, received));
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
