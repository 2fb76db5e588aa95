// Mutual authentication of connections between processes of one job: both ends prove that they know
// the job's secret.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/net/handshake.h"
#include "lockstep/net/socket.h"

namespace lockstep::inline v0::net {

/// The purposes of connections (Handshake): the watchdog, the rendezvous of tasks, and agents of
/// mpirun.
inline constexpr const char* kWatchPurpose = "watch";
inline constexpr const char* kLaunchPurpose = "launch";
inline constexpr const char* kAgentPurpose = "agent";

/// The reason that authenticate() reports if the other end closed the connection. It may have
/// reached its limit of pending connections, so a later attempt can succeed.
inline constexpr const char* kClosedByPeer = "it closed the connection";

/// The connecting end. Runs the handshake: both ends prove that they know the secret. Without a
/// secret (JobSecret::none), the other end must belong to this user. Waits at most `limit`. On
/// failure, `why` is a human-readable reason, and the socket must be closed. `socket` is connected
/// and non-blocking.
bool authenticate(const FileDescriptor& socket, const net::JobSecret& secret,
                  const std::string& purpose, std::chrono::milliseconds limit, std::string& why);

/// Whether the other end of a loopback connection is a socket of a process of this user.
bool belongs_to_this_user(int socket);

/// The listening end: holds connections until their handshakes are complete. A malicious client can
/// neither make it use more than a few kilobytes for each of 64 connections nor block other
/// clients: a handshake that is not complete after 5 s is abandoned, and earlier if other
/// connections are waiting. Times are seconds of any monotonic clock.
class PendingConnections {
 public:
  static constexpr std::size_t kMaxPending = 64;
  static constexpr double kPatience = 5;  ///< seconds allowed for a handshake
  /// Seconds allowed for the oldest if kMaxPending are pending.
  static constexpr double kBusyPatience = 0.25;

  PendingConnections(std::vector<Listener> listeners, net::JobSecret secret, std::string purpose);

  const std::vector<Listener>& listeners() const { return listeners_; }
  void add_interests(std::vector<pollfd>& interests, double now) const;
  /// The time at which advance() must be called even if no polled event occurred; infinity if none.
  double next_deadline(double now) const;
  /// Accepts connections and continues handshakes. Returns the sockets whose handshakes have
  /// succeeded; data after the handshake is still unread.
  std::vector<FileDescriptor> advance(double now);
  /// Number of connections closed because their handshake failed or took too long.
  int refused() const { return refused_; }

 private:
  struct Pending {
    FileDescriptor socket;
    net::Handshake handshake;
    std::string output;
    double since = 0;
  };

  void accept(double now);
  bool can_accept(double now) const;
  bool advance(Pending& pending, double now, std::vector<FileDescriptor>& authenticated);

  std::vector<Listener> listeners_;
  net::JobSecret secret_;
  std::string purpose_;
  std::vector<Pending> pending_;  // oldest first
  double paused_until_;           // out of file descriptors: nothing is accepted until then
  int refused_ = 0;
};

}  // namespace lockstep::inline v0::net
