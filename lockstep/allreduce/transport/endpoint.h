// One process's messages with all others of its job, over streams of bytes: matching of messages
// with receives, several sets of members, generations, bounded memory. It has no connections: a
// derived class moves the bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/allreduce/transport/byte_stream.h"
#include "lockstep/allreduce/transport/transport.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {

/// Which messages and receives match: of one member, in one set, with one tag.
struct Matching {
  int from = 0;
  std::uint64_t context = 0;
  Tag tag = Tag::call;

  auto operator<=>(const Matching&) const = default;
};

class Endpoint : private MessageSink {
 public:
  /// Bytes of messages of one process that may wait here for their receives. Further ones wait in
  /// the stream.
  static constexpr std::size_t kMaxWaiting = std::size_t{4} << 20;

  /// Process `rank` of a job. `nodes`: the node of each process. `max_waiting`: see kMaxWaiting.
  Endpoint(int rank, std::vector<int> nodes, std::uint64_t job, std::uint32_t generation = 0,
           std::size_t max_waiting = kMaxWaiting);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint() override = default;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  int node_of(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }
  Turn& turn() { return turn_; }

  // As in Transport, for ranks of the job. A process may send to itself.
  Message send(int to, std::uint64_t context, Tag tag, std::span<const std::byte> bytes);
  Message receive(const Matching& from, std::span<std::byte> memory);
  bool poll(Message& message, std::size_t* received);
  /// As in Transport, among `members`: the index of the member that has sent.
  std::optional<Arrival> probe(std::uint64_t context, Tag tag, std::span<const int> members);

  /// As in Transport.
  virtual bool sleep(std::chrono::nanoseconds /*longest*/) { return false; }

  /// Nothing more comes from `rank`, for this reason: messages with it fail that are not complete.
  void lose(int rank, const ErrorMessage& why);
  /// Bytes of messages of `rank` that wait for their receives.
  std::size_t waiting(int rank) const { return peers_[static_cast<std::size_t>(rank)]->waiting; }
  /// Number of messages of an earlier generation that were dropped.
  std::uint64_t dropped() const { return dropped_; }

 protected:
  OutgoingBytes& outgoing(int rank) { return peer(rank).outgoing; }
  IncomingBytes& incoming(int rank) { return peer(rank).incoming; }
  bool is_lost(int rank) const { return peers_[static_cast<std::size_t>(rank)]->lost.has_value(); }
  /// The number of the next message to `rank`.
  std::uint64_t& next_sequence(int rank) { return peer(rank).sequence; }
  /// `bytes` of outgoing(rank) have been sent.
  void sent(int rank, std::size_t bytes);
  /// Moves what can be moved without waiting: of the stream with `rank`, or of all.
  virtual void move(int rank) = 0;
  virtual void move_all() = 0;

 private:
  /// A message that was posted. A receive is complete when `bytes` is known.
  struct Posted {
    int peer = 0;
    bool is_receive = false;
    bool is_complete = false;
    std::span<std::byte> memory = {};
    std::uint64_t bytes = 0;  // the message's; may be more than fit into `memory`
  };
  /// A message that has arrived, or is arriving, without a receive; `receive` if one was posted
  /// since.
  struct Waiting {
    std::vector<std::byte> bytes;
    bool is_complete = false;
    std::uint64_t receive = 0;
  };
  struct Queue {
    std::deque<std::uint64_t> receives;
    std::deque<std::shared_ptr<Waiting>> waiting;
  };
  struct Peer {
    explicit Peer(int rank, MessageSink& sink) : incoming(rank, sink) {}

    OutgoingBytes outgoing;
    IncomingBytes incoming;
    std::uint64_t sequence = 0;           // the next message's to it
    std::size_t waiting = 0;              // bytes of its messages that wait
    std::optional<Matching> arriving;     // the message that is arriving
    std::uint64_t receive = 0;            // whose memory it goes to; 0: `unexpected`
    std::shared_ptr<Waiting> unexpected;  // null: the message is dropped
    std::uint64_t arriving_bytes = 0;
    bool is_held = false;  // its next message waits in the stream for its receive
    std::optional<ErrorMessage> lost;
  };

  Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  std::uint64_t post(const Posted& posted);
  Posted& at(std::uint64_t id) { return posted_[id - 1]; }
  void complete(std::uint64_t receive, std::uint64_t bytes);
  void finish_waiting(Peer& peer, Waiting& waiting);
  std::optional<std::span<std::byte>> begin(int from, const MessageHeader& header) override;
  void end(int from) override;

  int rank_;
  std::vector<int> nodes_;
  std::uint64_t job_;
  std::uint32_t generation_;
  std::size_t max_waiting_;
  Turn turn_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<Matching, Queue> queues_;
  std::deque<Posted> posted_;          // by id - 1
  std::vector<std::uint64_t> unused_;  // ids
  std::uint64_t dropped_ = 0;
  int polls_ = 0;
};

/// All processes of the job of `endpoint`, as members of one set.
std::shared_ptr<Transport> make_transport(std::shared_ptr<Endpoint> endpoint);

}  // namespace lockstep::inline v0::allreduce
