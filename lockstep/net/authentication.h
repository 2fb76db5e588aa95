// Connections between processes of one job: none is used before both ends have proved that they know the job's secret.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/net/handshake.h"
#include "lockstep/net/socket.h"

namespace lockstep::net {

/// The purposes of our connections (Handshake): of the watchdog's, of tasks that meet, of agents of mpirun.
inline constexpr const char* kWatchPurpose = "watch";
inline constexpr const char* kLaunchPurpose = "launch";
inline constexpr const char* kAgentPurpose = "agent";

/// What authenticate() says of an end that closed the connection: among many that come at once it may have had no room,
/// and may have later.
inline constexpr const char* kNoRoom = "it closed the connection";

/// The connecting end. Proves to the other that this process knows the secret, and has it prove the same; without a
/// secret (JobSecret::none) the other end must belong to this user. Waits for `limit` at most. On failure `why` is for
/// users, and the socket is of no use any more. `socket`: connected, non-blocking.
bool authenticate(const FileDescriptor& socket, const net::JobSecret& secret, const std::string& purpose,
                  std::chrono::milliseconds limit, std::string& why);

/// Whether the other end of a connection over this host's loopback is a socket that a process of this user holds.
bool is_of_this_user(int socket);

/// The listening end: whoever connects, until it has proved that it is of the job. Nobody can make it hold more than a
/// few kilobytes for each of 64 connections, nor keep others out: who says nothing is given up after 5 s, and sooner
/// where others wait. Times are seconds of any clock that never goes back.
class PendingConnections {
 public:
  static constexpr std::size_t kMaxPending = 64;
  static constexpr double kPatience = 5;         ///< seconds that a handshake may take
  static constexpr double kBusyPatience = 0.25;  ///< of the oldest where all places are taken

  PendingConnections(std::vector<Listener> listeners, net::JobSecret secret, std::string purpose);

  const std::vector<Listener>& listeners() const { return listeners_; }
  void add_interests(std::vector<pollfd>& interests, double now) const;
  /// When advance() has something to do although nothing that was polled for has happened; never: infinity.
  double next_deadline() const;
  /// Accepts, and goes on with handshakes. Returns the sockets of those that have succeeded: whatever they send next
  /// is still unread.
  std::vector<FileDescriptor> advance(double now);
  /// Connections that were closed because their handshake failed or took too long.
  int refused() const { return refused_; }

 private:
  struct Pending {
    FileDescriptor socket;
    net::Handshake handshake;
    std::string output;
    double since = 0;
  };

  void accept(double now);
  bool has_room(double now) const;
  bool advance(Pending& pending, double now, std::vector<FileDescriptor>& authenticated);

  std::vector<Listener> listeners_;
  net::JobSecret secret_;
  std::string purpose_;
  std::vector<Pending> pending_;  // the oldest first
  double paused_until_;           // no descriptors: nobody is accepted until then
  int refused_ = 0;
};

}  // namespace lockstep::net
