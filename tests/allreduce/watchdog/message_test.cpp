#include "lockstep/allreduce/watchdog/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/allreduce/watchdog/views.h"

namespace lockstep::allreduce {
namespace {

using ::testing::ElementsAre;

TEST(Message, ComesOutOfAStreamPieceByPiece) {
  const std::string wire =
      frame({.kind = Message::Kind::verdict, .body = "why"}) + frame({.kind = Message::Kind::beat});
  MessageReader reader;
  std::vector<std::string> bodies;
  for (const char byte : wire) {
    reader.add({&byte, 1});
    while (const auto message = reader.next()) bodies.push_back(message->body);
    EXPECT_FALSE(reader.is_broken());
  }
  EXPECT_THAT(bodies, ElementsAre("why", ""));
}

TEST(Message, RefusesWhatCannotBeOne) {
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\0\0\0\0\x77", 5)}) {
    MessageReader reader;
    reader.add(bytes);
    EXPECT_FALSE(reader.next());
    EXPECT_TRUE(reader.is_broken());
    reader.add(frame({.kind = Message::Kind::welcome}));
    EXPECT_FALSE(reader.next()) << "nothing comes after that";
  }
}

// With all bytes moved for each message these would take minutes.
TEST(Message, ComesOutOfALongStreamInTime) {
  constexpr int kMessages = 1'000'000;
  std::string wire;
  for (int i = 0; i < kMessages; ++i) wire += frame({.kind = Message::Kind::welcome});
  MessageReader reader;
  reader.add(wire);
  int messages = 0;
  while (reader.next()) ++messages;
  EXPECT_EQ(messages, kMessages);
}

TEST(Message, HasALimit) {
  EXPECT_NO_THROW(frame({.body = std::string(kLongestBody, 'x')}));
  EXPECT_THROW(frame({.body = std::string(kLongestBody + 1, 'x')}), CheckFailure);
}

TEST(Message, CarriesAHello) {
  const auto hello = read_hello(write_hello({.rank = 3, .host = "node3"}));
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->rank, 3);
  EXPECT_EQ(hello->host, "node3");
}

TEST(Message, CarriesReplicas) {
  ReplicaView second = outside(9, -1, 2.5, Phase::saving, 77);
  second.collective_seconds = 4.5;
  const auto replicas = read_beat(write_beat(std::vector{inside(8, 3, 1.25), second}));
  ASSERT_TRUE(replicas);
  ASSERT_EQ(replicas->size(), 2U);
  const ActivityState& first = replicas->front().state;
  EXPECT_EQ(first.operation, "all_reduce");
  EXPECT_EQ(first.bucket, 3);
  EXPECT_EQ(first.entered, 8U);
  EXPECT_EQ(first.left, 7U);
  const ReplicaView& last = replicas->back();
  EXPECT_EQ(last.state.step, 77);
  EXPECT_EQ(last.state.phase, Phase::saving);
  EXPECT_EQ(last.state.changes, 9U);
  EXPECT_EQ(last.still_seconds, 2.5);
  EXPECT_EQ(last.collective_seconds, 4.5);
}

TEST(Message, CarriesAnInvitation) {
  const auto invitation = read_invitation(write_invitation({.secret = "secret",
                                                            .host = "node0",
                                                            .endpoints = {{"127.0.0.1", 40001}, {"10.0.0.1", 40002}},
                                                            .stall_timeout = 120,
                                                            .heartbeat = 1}));
  ASSERT_TRUE(invitation);
  EXPECT_EQ(invitation->secret, "secret");
  EXPECT_EQ(invitation->host, "node0");
  ASSERT_EQ(invitation->endpoints.size(), 2U);
  EXPECT_EQ(invitation->endpoints[0].address, "127.0.0.1");
  EXPECT_EQ(invitation->endpoints[0].port, 40001);
  EXPECT_EQ(invitation->endpoints[1].address, "10.0.0.1");
  EXPECT_EQ(invitation->endpoints[1].port, 40002);
  EXPECT_EQ(invitation->stall_timeout, 120);
  EXPECT_EQ(invitation->heartbeat, 1);
}

TEST(Message, CarriesWhyARankLeaves) {
  EXPECT_TRUE(read_goodbye(write_goodbye(true)));
  EXPECT_FALSE(read_goodbye(write_goodbye(false)));
}

TEST(Message, ReadsNothingFromPartsOfABody) {
  const std::string hello = write_hello({.rank = 3, .host = "node3"});
  const std::string beat = write_beat(std::vector{inside(8, 3, 1)});
  const std::string invitation = write_invitation({.secret = "t", .host = "h", .endpoints = {{"a", 1}}});
  for (std::size_t size = 0; size < hello.size(); ++size) EXPECT_FALSE(read_hello(hello.substr(0, size)));
  for (std::size_t size = 0; size < beat.size(); ++size) EXPECT_FALSE(read_beat(beat.substr(0, size)));
  for (std::size_t size = 0; size < invitation.size(); ++size)
    EXPECT_FALSE(read_invitation(invitation.substr(0, size)));
  EXPECT_FALSE(read_hello(hello + "x"));
  EXPECT_FALSE(read_beat(beat + "x"));
  EXPECT_FALSE(read_beat(std::string("\xff\xff\xff\xff", 4)));
}

}  // namespace
}  // namespace lockstep::allreduce
