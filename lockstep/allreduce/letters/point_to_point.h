// Messages between two members, which tags match, as those of MPI_Send and MPI_Recv.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/allreduce/transport/transport.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {

inline constexpr int kAnySource = -1;

/// A message to one member, or from one or any of them.
struct Letter {
  bool is_sent = false;              ///< false: it is received
  int member = 0;                    ///< the receiver; or the sender, or kAnySource
  std::int32_t tag = 0;              ///< equal at both ends
  std::span<std::byte> memory = {};  ///< not changed if it is sent
  int source = kAnySource;           ///< set when it is received: who sent it
  std::size_t bytes = 0;             ///< set when it is received
  bool is_done = false;              ///< also after an error
  std::optional<ErrorMessage> error = {};

  // PointToPoint uses these.
  std::uint64_t number = 0;
  Message payload = {};
};

/// The letters of one member. A state machine: everything happens in advance(), which is called
/// with the turn of the transport.
///
/// A short letter is sent at once, and waits at its receiver. Of a long one the receiver learns
/// that it exists; it asks for it when a receive matches, so that little waits in memory. Letters
/// of one member with one tag are received in the order in which they were sent.
class PointToPoint {
 public:
  /// Longer letters wait at their sender.
  static constexpr std::size_t kShort = std::size_t{16} << 10;

  /// `transport` is used by this object alone, and outlives it.
  explicit PointToPoint(Transport& transport) : transport_(transport) {}
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;
  /// Memory of messages in flight is leaked, because the transport uses it.
  ~PointToPoint();

  /// Its memory stays valid until it is done.
  void add(std::shared_ptr<Letter> letter);
  /// Returns whether anything has happened.
  bool advance();
  /// Whether all letters are done, and everything is sent.
  bool is_idle() const;
  /// Ends all letters, and later ones, with this error.
  void fail(const ErrorMessage& failure);

 private:
  enum class Kind : std::uint32_t { whole, offer, ready, refusal };
  struct Notice {
    Kind kind = Kind::whole;
    std::int32_t tag = 0;
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
  };
  struct Outgoing {
    std::vector<std::byte> bytes;
    Message message;
  };
  /// A letter that nobody receives yet.
  struct Arrived {
    int from = 0;
    Notice notice;
    std::vector<std::byte> bytes;  // the letter itself, if it is short
  };

  void notify(int to, const Notice& notice, std::span<const std::byte> bytes = {});
  void take(int from, std::span<const std::byte> bytes);
  void deliver(Letter& letter, const Arrived& arrived);
  bool move_payloads();
  std::shared_ptr<Letter> take_offered(int to, std::uint64_t number);

  Transport& transport_;
  std::list<Outgoing> outgoing_;
  std::list<std::shared_ptr<Letter>> offered_;  // sent: until the receiver asks
  std::list<std::shared_ptr<Letter>> awaited_;  // received: until they are matched
  std::list<std::shared_ptr<Letter>> in_flight_;
  std::list<Arrived> arrived_;
  std::uint64_t next_number_ = 0;
  std::optional<ErrorMessage> failure_;
};

}  // namespace lockstep::inline v0::allreduce
