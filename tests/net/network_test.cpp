#include "lockstep/net/interfaces.h"

#include <gtest/gtest.h>

namespace lockstep::inline v0::net {
namespace {

TEST(NetworkRoute, UsesLoopbackToThisHost) {
  const NetworkRoute way = route_to("127.0.0.1");
  EXPECT_EQ(way.interface, "lo");
  EXPECT_EQ(way.address, "127.0.0.1");
}

TEST(NetworkRoute, RequiresANumericAddress) {
  EXPECT_EQ(route_to("localhost").interface, "");
  EXPECT_EQ(route_to("").interface, "");
  EXPECT_EQ(route_to("300.0.0.1").address, "");
}

}  // namespace
}  // namespace lockstep::inline v0::net
