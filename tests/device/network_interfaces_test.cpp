#include "device/network_interfaces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lockstep::device {
namespace {

TEST(NetworkAddresses, LeaveOutLoopbackAndWhatMeansSomethingOnOneLinkAlone) {
  for (const NetworkAddress& address : network_addresses()) {
    EXPECT_FALSE(address.interface.empty());
    EXPECT_NE(address.interface, "lo");
    EXPECT_FALSE(address.address.starts_with("127.")) << address.address;
    EXPECT_FALSE(address.address.starts_with("fe80:")) << address.address;
    EXPECT_GE(address.bits_per_second, 0);
  }
}

TEST(NetworkAddresses, AreKnownWithoutADescriptionOfTheirInterfaces) {
  const auto described = network_addresses();
  const auto bare = network_addresses("/nowhere");
  ASSERT_EQ(bare.size(), described.size());
  for (std::size_t i = 0; i < bare.size(); ++i) {
    EXPECT_EQ(bare[i].address, described[i].address);
    EXPECT_EQ(bare[i].mtu, 0);
    EXPECT_EQ(bare[i].bits_per_second, 0);
  }
}

}  // namespace
}  // namespace lockstep::device
