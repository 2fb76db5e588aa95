#include "lockstep/allreduce/watchdog/message.h"

#include <gtest/gtest.h>

#include "tests/allreduce/watchdog/views.h"

namespace lockstep::inline v0::allreduce {
namespace {

TEST(Message, IsOfAKnownKind) {
  net::FrameReader reader(kMessageLimits);
  for (const MessageKind kind : {MessageKind::hello, MessageKind::welcome, MessageKind::beat,
                                 MessageKind::verdict, MessageKind::ending, MessageKind::goodbye}) {
    reader.add(net::encode(kind));
    const auto message = reader.next();
    ASSERT_TRUE(message);
    EXPECT_TRUE(message->is(kind));
  }
  reader.add(std::string("\0\0\0\0\6", 5));
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.is_broken());
}

TEST(Message, CarriesAHello) {
  const auto hello = read_hello(write_hello({.rank = 3, .host = "node3"}));
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->rank, 3);
  EXPECT_EQ(hello->host, "node3");
}

TEST(Message, CarriesReplicas) {
  ReplicaView second = outside(9, -1, 2.5, Phase::saving, 77);
  second.unreported_seconds = 3.5;
  second.collective_seconds = 4.5;
  second.group = {.number = 6, .members = {2, 0}};
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
  EXPECT_EQ(last.unreported_seconds, 3.5);
  EXPECT_EQ(last.collective_seconds, 4.5);
  EXPECT_EQ(last.group.number, 6U);
  EXPECT_EQ(last.group.members, (std::vector<std::int32_t>{2, 0}));
}

TEST(Message, CarriesAnInvitation) {
  const auto invitation =
      read_invitation(write_invitation({.secret = "secret",
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

TEST(Message, CarriesTheReasonOfAGoodbye) {
  EXPECT_TRUE(read_goodbye(write_goodbye(true)));
  EXPECT_FALSE(read_goodbye(write_goodbye(false)));
}

TEST(Message, RejectsTruncatedBodies) {
  const std::string hello = write_hello({.rank = 3, .host = "node3"});
  const std::string beat = write_beat(std::vector{inside(8, 3, 1)});
  const std::string invitation =
      write_invitation({.secret = "t", .host = "h", .endpoints = {{"a", 1}}});
  for (std::size_t size = 0; size < hello.size(); ++size)
    EXPECT_FALSE(read_hello(hello.substr(0, size)));
  for (std::size_t size = 0; size < beat.size(); ++size)
    EXPECT_FALSE(read_beat(beat.substr(0, size)));
  for (std::size_t size = 0; size < invitation.size(); ++size)
    EXPECT_FALSE(read_invitation(invitation.substr(0, size)));
  EXPECT_FALSE(read_hello(hello + "x"));
  EXPECT_FALSE(read_beat(beat + "x"));
  EXPECT_FALSE(read_beat(std::string("\xff\xff\xff\xff", 4)));
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
