// Messages between ranks outside MPI: frames of lockstep/net/connection.h, whose bodies are in host
// byte order, which is the same on all hosts of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/watchdog/progress.h"
#include "lockstep/net/connection.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::allreduce {

enum class MessageKind : std::uint8_t {
  hello,    ///< first message of a rank to rank 0: Hello
  welcome,  ///< rank 0's reply to hello
  beat,     ///< the sender's replicas: Beat
  verdict,  ///< rank 0's text: all ranks must exit
  ending,  ///< a rank has failed and the job will end: from that rank to rank 0, from rank 0 to all
  goodbye,  ///< ends the watch of the sender: Goodbye
};

/// Limits of connections to rank 0.
inline constexpr net::FrameLimits kMessageLimits{
    .kinds = {"\0\1\2\3\4\5", 6}, .body = std::size_t{256} << 10, .queued = std::size_t{2} << 20};

struct Hello {
  std::int32_t rank = 0;
  std::string host{};
};

/// Message bodies. Input may be untrusted: the read functions return nullopt for anything not
/// written by the matching write function.
std::string write_hello(const Hello& hello);
std::optional<Hello> read_hello(std::string_view body);
std::string write_beat(std::span<const ReplicaView> replicas);
std::optional<std::vector<ReplicaView>> read_beat(std::string_view body);
/// `after_error`: the sender exits because of an exception.
std::string write_goodbye(bool after_error);
bool read_goodbye(std::string_view body);

/// The addresses of rank 0 and the secret for authentication, sent over MPI at the start.
struct Invitation {
  std::string secret{};
  std::string host{};  ///< host of rank 0
  std::vector<net::Endpoint> endpoints{};
  double stall_timeout = 0;  ///< rank 0's value is used by all
  double heartbeat = 0;
};
std::string write_invitation(const Invitation& invitation);
std::optional<Invitation> read_invitation(std::string_view body);

}  // namespace lockstep::inline v0::allreduce
