#include "lockstep/net/interfaces.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::inline v0::net {
namespace {

TEST(NetworkAddresses, ExcludeLoopbackAndLinkLocalAddresses) {
  for (const NetworkAddress& address : network_addresses()) {
    EXPECT_FALSE(address.interface.empty());
    EXPECT_NE(address.interface, "lo");
    EXPECT_FALSE(address.address.starts_with("127.")) << address.address;
    EXPECT_FALSE(address.address.starts_with("fe80:")) << address.address;
    EXPECT_GE(address.bits_per_second, 0);
  }
}

TEST(NetworkAddresses, ReportTheirMtuWithIPv4First) {
  const auto addresses = network_addresses();
  for (const NetworkAddress& address : addresses) EXPECT_GE(address.mtu, 68) << address.interface;
  EXPECT_TRUE(std::ranges::is_partitioned(addresses, [](const NetworkAddress& address) {
    return address.address.find(':') == std::string::npos;
  }));
}

TEST(InterfaceAddresses, ReportTheirNetwork) {
  const auto addresses = interface_addresses();
  const auto loopback = std::ranges::find(addresses, "127.0.0.1", &InterfaceAddress::address);
  ASSERT_NE(loopback, addresses.end());
  EXPECT_EQ(loopback->interface, "lo");
  EXPECT_EQ(loopback->network, "127.0.0.0/8");
  EXPECT_TRUE(loopback->is_loopback);
}

}  // namespace
}  // namespace lockstep::inline v0::net
