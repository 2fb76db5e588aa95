// Which of a host's network interfaces lead where.
#pragma once

#include <string>

namespace lockstep::device {

/// One end of a way to another host.
struct NetworkWay {
  std::string interface = {};  ///< "eth0"; empty where there is no way
  std::string address = {};    ///< of this host on it
};

/// How packets from this host to the numeric `address` would leave, by the system's table of routes. Sends nothing.
NetworkWay way_to(const std::string& address);

}  // namespace lockstep::device
