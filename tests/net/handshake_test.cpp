#include "lockstep/net/handshake.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::inline v0::net {
namespace {

using Role = Handshake::Role;

const JobSecret kHandshakeSecret("a secret of this job", "test");
const JobSecret kOtherSecret("a secret of another job", "test");

/// Transfers bytes between the two ends until neither has output; returns everything that the
/// initiator sent.
std::string run_handshake(Handshake& initiator, Handshake& responder) {
  std::string sent;
  for (;;) {
    const std::string there = initiator.drain_output();
    if (!there.empty()) responder.receive(there);
    sent += there;
    const std::string back = responder.drain_output();
    if (!back.empty()) initiator.receive(back);
    if (there.empty() && back.empty()) return sent;
  }
}

TEST(Handshake, SucceedsIfBothKnowTheSecret) {
  Handshake initiator(kHandshakeSecret, Role::initiator, "watch");
  Handshake responder(kHandshakeSecret, Role::responder, "watch");
  run_handshake(initiator, responder);
  EXPECT_TRUE(initiator.succeeded());
  EXPECT_TRUE(responder.succeeded());
  EXPECT_EQ(initiator.wanted(), 0U) << "what follows belongs to another reader";
  EXPECT_EQ(responder.wanted(), 0U);
}

TEST(Handshake, WorksByteByByte) {
  Handshake initiator(kHandshakeSecret, Role::initiator, "watch");
  Handshake responder(kHandshakeSecret, Role::responder, "watch");
  for (Handshake* to : {&responder, &initiator, &responder}) {
    Handshake& from = to == &responder ? initiator : responder;
    for (const char byte : from.drain_output()) to->receive({&byte, 1});
  }
  EXPECT_TRUE(initiator.succeeded());
  EXPECT_TRUE(responder.succeeded());
}

TEST(Handshake, FailsAtBothEndsIfTheSecretsDiffer) {
  Handshake initiator(kHandshakeSecret, Role::initiator, "watch");
  Handshake responder(kOtherSecret, Role::responder, "watch");
  run_handshake(initiator, responder);
  EXPECT_TRUE(initiator.failed());
  EXPECT_EQ(initiator.reason(), "it does not know the secret of this job");
  EXPECT_FALSE(responder.succeeded());
  // An initiator that ignores the failure and continues is rejected.
  responder.receive(std::string(responder.wanted(), 'x'));
  EXPECT_TRUE(responder.failed());
}

TEST(Handshake, FailsForAnotherPurpose) {
  Handshake initiator(kHandshakeSecret, Role::initiator, "watch");
  Handshake responder(kHandshakeSecret, Role::responder, "launch");
  run_handshake(initiator, responder);
  EXPECT_TRUE(initiator.failed());
}

TEST(Handshake, RejectsReplay) {
  Handshake initiator(kHandshakeSecret, Role::initiator, "watch");
  Handshake responder(kHandshakeSecret, Role::responder, "watch");
  const std::string recorded = run_handshake(initiator, responder);
  ASSERT_TRUE(responder.succeeded());
  Handshake again(kHandshakeSecret, Role::responder, "watch");
  again.receive(recorded.substr(0, again.wanted()));
  const std::string rest = recorded.substr(recorded.size() - again.wanted());
  again.receive(rest);
  EXPECT_TRUE(again.failed());
}

TEST(Handshake, RejectsReflection) {
  // An attacker without the secret reflects the messages of a process back to it.
  Handshake victim(kHandshakeSecret, Role::initiator, "watch");
  Handshake unwilling(kHandshakeSecret, Role::responder, "watch");
  unwilling.receive(victim.drain_output());
  const std::string answer = unwilling.drain_output();
  unwilling.receive(answer.substr(answer.size() - unwilling.wanted()));
  EXPECT_TRUE(unwilling.failed());
}

TEST(Handshake, RejectsOtherProtocolsByTheirFirstBytes) {
  Handshake responder(kHandshakeSecret, Role::responder, "watch");
  responder.receive("GET");
  EXPECT_TRUE(responder.failed());
  EXPECT_EQ(responder.wanted(), 0U);
  EXPECT_EQ(responder.drain_output(), "");
}

}  // namespace
}  // namespace lockstep::inline v0::net
