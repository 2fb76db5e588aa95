#include "apps/lockstep/launch/reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allreduce/watch/socket.h"

namespace lockstep::apps::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::uint16_t port_of_nobody() { return allreduce::Listener().port(); }

TEST(Reach, NeedsOneAddressThatAnswers) {
  const allreduce::Listener listener;
  EXPECT_THAT(try_to_reach({{"b", {"127.0.0.1"}, listener.port()}}, milliseconds(2000)), IsEmpty());
  EXPECT_THAT(try_to_reach({{"b", {"no address", "127.0.0.1"}, listener.port()}}, milliseconds(2000)), IsEmpty());
}

TEST(Reach, NamesHostAddressAndInterfaceThatDoNot) {
  const allreduce::Listener listener;
  EXPECT_THAT(
      try_to_reach({{"b", {"127.0.0.1"}, listener.port()}, {"c", {"127.0.0.1"}, port_of_nobody()}, {"d", {}, 1}},
                   milliseconds(2000)),
      ElementsAre("c at 127.0.0.1 by lo: Connection refused", "d: it has no address"));
}

TEST(Reach, TargetsAreReadAsTheyWereSent) {
  const std::vector<Target> sent = {{"b", {"10.0.0.1", "::1"}, 7}, {"c", {}, 65535}};
  EXPECT_EQ(parse_targets(to_text(sent)), sent);
}

TEST(AddressesOf, KnowsNumbersAndSaysWhatItDoesNotKnow) {
  std::string why;
  EXPECT_THAT(addresses_of("127.0.0.1", why), ElementsAre("127.0.0.1"));
  EXPECT_EQ(why, "");
  EXPECT_THAT(addresses_of("no such name", why), IsEmpty());
  EXPECT_THAT(why, ::testing::StartsWith("the name no such name has no address: "));
}

}  // namespace
}  // namespace lockstep::apps::launch
