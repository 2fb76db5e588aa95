#include "lockstep/net/interfaces.h"

#include <gtest/gtest.h>

namespace lockstep::net {
namespace {

TEST(NetworkWay, ToThisHostIsTheLoopback) {
  const NetworkWay way = way_to("127.0.0.1");
  EXPECT_EQ(way.interface, "lo");
  EXPECT_EQ(way.address, "127.0.0.1");
}

TEST(NetworkWay, NeedsANumericAddress) {
  EXPECT_EQ(way_to("localhost").interface, "");
  EXPECT_EQ(way_to("").interface, "");
  EXPECT_EQ(way_to("300.0.0.1").address, "");
}

}  // namespace
}  // namespace lockstep::net
