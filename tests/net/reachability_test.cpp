// Connecting to hosts that answer, refuse or stay silent.
#include "lockstep/net/reachability.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/net/silence.h"

namespace lockstep::inline v0::net {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr milliseconds kLong{20000};

std::uint16_t unused_port() { return Listener().port(); }

TEST(Reachability, TriesEveryEndpointOfEveryHost) {
  const Listener listener;
  const auto attempts = connect_to_hosts(
      {{{"127.0.0.1", listener.port()}, {"nowhere", 1}}, {}, {{"127.0.0.1", unused_port()}}}, kLong,
      Until::each_endpoint_answered);
  ASSERT_EQ(attempts.size(), 3U);
  EXPECT_TRUE(attempts[0].socket.is_open());
  EXPECT_EQ(attempts[0].failure, "");
  EXPECT_EQ(attempts[1].failure, "not an address");
  EXPECT_EQ(attempts[2].host, 2U);
  EXPECT_EQ(attempts[2].failure, "Connection refused");
  EXPECT_FALSE(attempts[2].socket.is_open());
}

TEST(Reachability, SkipsOtherEndpointsOfAHostThatAnswered) {
  const Silence silence;
  const Listener listener("127.0.0.1", 0);
  const auto attempts =
      connect_to_hosts({{{"127.0.0.2", silence.port()}, {"127.0.0.1", listener.port()}}}, kLong,
                       Until::each_host_answered);
  EXPECT_TRUE(attempts[0].timed_out);
  EXPECT_FALSE(attempts[0].socket.is_open());
  EXPECT_TRUE(attempts[1].socket.is_open());
}

TEST(Reachability, EndsAtTheLimit) {
  const Silence silence;
  std::string why;
  EXPECT_FALSE(connect_to("127.0.0.2", silence.port(), milliseconds(50), why).is_open());
  EXPECT_EQ(why, "Connection timed out");
}

TEST(AddressesOf, ResolvesNumbersAndReportsUnknownNames) {
  std::string why;
  EXPECT_THAT(addresses_of("127.0.0.1", why), ElementsAre("127.0.0.1"));
  EXPECT_EQ(why, "");
  EXPECT_THAT(addresses_of("no such name", why), IsEmpty());
  EXPECT_THAT(why, ::testing::StartsWith("the name no such name has no address: "));
}

TEST(HostAddresses, ExcludeLoopbackForOtherHosts) {
  for (const std::string& address : addresses_for_other_hosts())
    EXPECT_FALSE(is_loopback(address)) << address;
  EXPECT_THAT(host_addresses(), ::testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace lockstep::inline v0::net
