// What ranks say to each other outside MPI: bytes on a stream, in the byte order of the job's hosts, which are alike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/watchdog/progress.h"

namespace lockstep::allreduce {

struct Message {
  enum class Kind : std::uint8_t {
    hello,    ///< first word of a rank to rank 0: Hello
    welcome,  ///< rank 0's answer
    beat,     ///< the sender's replicas: Beat
    verdict,  ///< rank 0's text: everyone is to leave
    ending,   ///< a rank has failed, and the job is about to be ended: from that rank to rank 0, from rank 0 to all
    goodbye,  ///< the sender is not to be watched any more: Goodbye
  };

  Kind kind = Kind::beat;
  std::string body{};
};

/// A message as it goes over the wire: length, kind, body. Throws CheckFailure for a body above kLongestBody.
std::string frame(const Message& message);

inline constexpr std::size_t kLongestBody = std::size_t{256} << 10;

/// Takes a stream of messages apart.
class MessageReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The next whole message.
  std::optional<Message> next();
  /// Whether what came is no stream of messages; nothing comes out any more.
  bool is_broken() const { return broken_; }

 private:
  std::string bytes_;
  std::size_t begin_ = 0;  // of what has not come out yet
  bool broken_ = false;
};

struct Hello {
  std::int32_t rank = 0;
  std::string host{};
};

/// Bodies. What is read may come from a stranger: nullopt for anything that was not written by the function beside it.
std::string write_hello(const Hello& hello);
std::optional<Hello> read_hello(std::string_view body);
std::string write_beat(std::span<const ReplicaView> replicas);
std::optional<std::vector<ReplicaView>> read_beat(std::string_view body);
/// `after_error`: the sender leaves because of an exception.
std::string write_goodbye(bool after_error);
bool read_goodbye(std::string_view body);

/// A numeric address and a TCP port of it.
struct Endpoint {
  std::string address{};
  std::uint16_t port = 0;
};

/// How a rank finds rank 0, and with which secret it proves that it is of the job: what MPI carries at the start.
struct Invitation {
  std::string secret{};
  std::string host{};  ///< of rank 0
  std::vector<Endpoint> endpoints{};
  double stall_timeout = 0;  ///< rank 0's hold for all
  double heartbeat = 0;
};
std::string write_invitation(const Invitation& invitation);
std::optional<Invitation> read_invitation(std::string_view body);

}  // namespace lockstep::allreduce
