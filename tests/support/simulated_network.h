// Processes of a job that exchange bytes within this process, in one thread. What moves when is
// determined by a seed.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "lockstep/allreduce/transport/endpoint.h"

namespace lockstep::inline v0::allreduce {

struct NetworkOptions {
  std::size_t capacity = 4096;  ///< bytes that may be on their way from one process to another
  std::size_t max_waiting = Endpoint::kMaxWaiting;  ///< see Endpoint
  std::uint32_t generation = 0;
  bool moves_all = false;  ///< at once; so what happens does not depend on the sizes of messages
};

/// A process whose bytes the network moves.
class SimulatedEndpoint final : public Endpoint {
 public:
  static constexpr std::uint64_t kJob = 7;

  SimulatedEndpoint(int rank, std::vector<int> nodes, const NetworkOptions& options)
      : Endpoint(rank, std::move(nodes), kJob, options.generation, options.max_waiting) {}

  OutgoingBytes& bytes_to(int other) { return outgoing(other); }
  IncomingBytes& bytes_from(int other) { return incoming(other); }
  /// Called when this process looks for messages.
  std::function<void()> on_move = {};
  void mark_sent(int other, std::size_t bytes) { sent(other, bytes); }
  bool has_lost(int other) const { return is_lost(other); }
  /// Sends a message as before the job changed its members. `bytes` stay valid.
  void send_late(int other, std::uint64_t context, Tag tag, std::span<const std::byte> bytes,
                 std::uint32_t generation) {
    outgoing(other).add({.job = kJob,
                         .generation = generation,
                         .tag = tag,
                         .context = context,
                         .sequence = next_sequence(other)++,
                         .bytes = bytes.size()},
                        bytes, unused_id_);
  }

 protected:
  void move(int /*rank*/) override { move_all(); }
  void move_all() override {
    if (on_move) on_move();
  }

 private:
  // The late messages have one, which nobody waits for.
  std::uint64_t unused_id_ = receive_nothing();

  std::uint64_t receive_nothing() {
    return receive({.from = rank(), .context = ~std::uint64_t{0}, .tag = Tag::call}, {}).id;
  }
};

/// Moves bytes between processes, some at a time. Bytes between two processes stay in order.
class SimulatedNetwork {
 public:
  SimulatedNetwork(int processes, std::uint64_t seed, const NetworkOptions& options = {})
      : random_(seed),
        capacity_(options.capacity),
        moves_all_(options.moves_all),
        links_(static_cast<std::size_t>(processes) * static_cast<std::size_t>(processes)) {
    for (int rank = 0; rank < processes; ++rank)
      endpoints_.push_back(std::make_shared<SimulatedEndpoint>(
          rank, std::vector<int>(static_cast<std::size_t>(processes)), options));
  }

  std::shared_ptr<Transport> transport(int rank) {
    return make_transport(endpoints_[static_cast<std::size_t>(rank)]);
  }
  SimulatedEndpoint& endpoint(int rank) { return *endpoints_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(endpoints_.size()); }
  std::mt19937_64& random() { return random_; }
  /// A number from 0 to below - 1.
  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  /// Moves some bytes between two processes. A receiver that finds something wrong loses the
  /// sender.
  void step() {
    const int from = pick(size());
    const int to = pick(size());
    if (from == to) return;
    Link& link = link_of(from, to);
    if (pick(2) == 0) return accept(endpoint(from), to, link);
    try {
      deliver(endpoint(to), from, link);
    } catch (const Error& error) {
      endpoint(to).lose(from, error.message());
    }
  }

  /// The process ends: what its system has accepted still arrives, unless `at_once`; then the
  /// others find the end of its connections.
  void end(int rank, bool at_once) {
    for (int other = 0; other < size(); ++other) {
      Link& link = link_of(rank, other);
      link.has_ended = true;
      if (at_once) link.bytes.clear();
      link_of(other, rank).is_ignored = true;
    }
  }

 private:
  struct Link {
    std::deque<std::byte> bytes;
    bool has_ended = false;   // the sender has ended
    bool is_ignored = false;  // the receiver has ended
  };

  Link& link_of(int from, int to) {
    return links_[static_cast<std::size_t>(from) * endpoints_.size() +
                  static_cast<std::size_t>(to)];
  }

  std::size_t some(std::size_t most) {
    return most == 0 || moves_all_ ? most : 1 + random_() % most;
  }

  // The sender's system accepts some bytes.
  void accept(SimulatedEndpoint& sender, int to, Link& link) {
    if (link.has_ended) return;
    std::size_t room = some(capacity_ - std::min(capacity_, link.bytes.size()));
    std::size_t moved = 0;
    for (const std::span<const std::byte> part : sender.bytes_to(to).next(8)) {
      const std::size_t bytes = std::min(room, part.size());
      if (!link.is_ignored)
        link.bytes.insert(link.bytes.end(), part.begin(),
                          part.begin() + static_cast<std::ptrdiff_t>(bytes));
      room -= bytes;
      moved += bytes;
    }
    if (moved > 0) sender.mark_sent(to, moved);
  }

  // The receiver reads some bytes.
  void deliver(SimulatedEndpoint& receiver, int from, Link& link) {
    if (link.is_ignored || receiver.has_lost(from)) return;
    if (link.has_ended && link.bytes.empty())
      return receiver.lose(from,
                           {"transport", fmt::format("expected rank {} to stay connected", from),
                            "its connection ended"});
    std::size_t left = some(link.bytes.size());
    while (left > 0) {
      const std::span<std::byte> into = receiver.bytes_from(from).next();
      if (into.empty()) return;
      const std::size_t bytes = std::min(left, into.size());
      const auto end = link.bytes.begin() + static_cast<std::ptrdiff_t>(bytes);
      std::copy(link.bytes.begin(), end, into.begin());
      link.bytes.erase(link.bytes.begin(), end);
      receiver.bytes_from(from).received(bytes);
      left -= bytes;
    }
  }

  std::mt19937_64 random_;
  std::size_t capacity_;
  bool moves_all_;
  std::vector<Link> links_;  // from * size + to
  std::vector<std::shared_ptr<SimulatedEndpoint>> endpoints_;
};

}  // namespace lockstep::inline v0::allreduce
