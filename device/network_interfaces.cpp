#include "device/network_interfaces.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

namespace lockstep::device {
namespace {

/// Asks the kernel about interfaces: unlike the files below /sys, it answers for the network of this process, which may
/// be that of a container.
class Questions {
 public:
  Questions() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;
  ~Questions() {
    if (socket_ >= 0) ::close(socket_);
  }

  int mtu(const char* interface) const {
    ifreq request = about(interface);
    return ::ioctl(socket_, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
  }

  std::int64_t bits_per_second(const char* interface) const {
    constexpr std::int64_t kMegabit = 1'000'000;
    ethtool_cmd settings{};
    settings.cmd = ETHTOOL_GSET;
    ifreq request = about(interface);
    request.ifr_data = reinterpret_cast<char*>(&settings);
    if (::ioctl(socket_, SIOCETHTOOL, &request) != 0) return 0;
    const std::uint32_t speed = ethtool_cmd_speed(&settings);
    return speed == static_cast<std::uint32_t>(SPEED_UNKNOWN) ? 0 : speed * kMegabit;
  }

 private:
  static ifreq about(const char* interface) {
    ifreq request{};
    const std::string name(interface);
    name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    return request;
  }

  int socket_;
};

/// Empty for what is no address of the internet, or means something on one link alone.
std::string numeric(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  const std::string whole = text.data();
  return whole.find('%') == std::string::npos ? whole : "";
}

}  // namespace

std::vector<NetworkAddress> network_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  const Questions questions;
  std::vector<NetworkAddress> all;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    const int family = entry->ifa_addr->sa_family;
    const std::string text = family == AF_INET || family == AF_INET6 ? numeric(entry->ifa_addr) : "";
    if (text.empty()) continue;
    all.push_back({.interface = entry->ifa_name,
                   .address = text,
                   .mtu = questions.mtu(entry->ifa_name),
                   .bits_per_second = questions.bits_per_second(entry->ifa_name)});
  }
  std::ranges::stable_partition(
      all, [](const NetworkAddress& address) { return address.address.find(':') == std::string::npos; });
  return all;
}

}  // namespace lockstep::device
