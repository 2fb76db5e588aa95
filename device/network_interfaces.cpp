#include "device/network_interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>

#include <netinet/in.h>

namespace lockstep::device {
namespace {

std::int64_t number_in(const std::filesystem::path& file) {
  std::int64_t number = 0;
  std::ifstream(file) >> number;
  return std::max<std::int64_t>(number, 0);  // -1 is written where nothing is known
}

/// Empty for what is no address of the internet, or means something on one link alone.
std::string numeric(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  const std::string whole = text.data();
  return whole.find('%') == std::string::npos ? whole : "";
}

}  // namespace

std::vector<NetworkAddress> network_addresses(const std::filesystem::path& interfaces) {
  constexpr std::int64_t kMegabit = 1'000'000;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<NetworkAddress> all;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    const int family = entry->ifa_addr->sa_family;
    const std::string text = family == AF_INET || family == AF_INET6 ? numeric(entry->ifa_addr) : "";
    if (text.empty()) continue;
    const std::filesystem::path folder = interfaces / entry->ifa_name;
    all.push_back({.interface = entry->ifa_name,
                   .address = text,
                   .mtu = static_cast<int>(number_in(folder / "mtu")),
                   .bits_per_second = number_in(folder / "speed") * kMegabit});
  }
  std::ranges::stable_partition(
      all, [](const NetworkAddress& address) { return address.address.find(':') == std::string::npos; });
  return all;
}

}  // namespace lockstep::device
