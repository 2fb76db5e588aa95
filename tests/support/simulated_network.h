// Processes of a job that exchange bytes within this process, in one thread. What moves when is
// determined by a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "lockstep/allreduce/transport/endpoint.h"

namespace lockstep::inline v0::allreduce {

class SimulatedNetwork;

/// A process whose bytes the network moves.
class SimulatedEndpoint final : public Endpoint {
 public:
  SimulatedEndpoint(SimulatedNetwork& network, int rank, std::vector<int> nodes)
      : Endpoint(rank, std::move(nodes), /*job=*/7), network_(network) {}

  OutgoingBytes& bytes_to(int other) { return outgoing(other); }
  IncomingBytes& bytes_from(int other) { return incoming(other); }
  void mark_sent(int other, std::size_t bytes) { sent(other, bytes); }

 protected:
  void move(int /*rank*/) override {}
  void move_all() override {}

 private:
  SimulatedNetwork& network_;
};

/// Moves bytes between processes, some at a time. Bytes between two processes stay in order.
class SimulatedNetwork {
 public:
  /// `capacity`: bytes that may be on their way from one process to another.
  SimulatedNetwork(int processes, std::uint64_t seed, std::size_t capacity = 4096)
      : random_(seed),
        capacity_(capacity),
        links_(static_cast<std::size_t>(processes) * static_cast<std::size_t>(processes)) {
    for (int rank = 0; rank < processes; ++rank)
      endpoints_.push_back(std::make_shared<SimulatedEndpoint>(
          *this, rank, std::vector<int>(static_cast<std::size_t>(processes))));
  }

  std::shared_ptr<Transport> transport(int rank) {
    return make_transport(endpoints_[static_cast<std::size_t>(rank)]);
  }
  SimulatedEndpoint& endpoint(int rank) { return *endpoints_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(endpoints_.size()); }
  std::mt19937_64& random() { return random_; }

  /// Moves some bytes between two processes. Throws what the receiver throws.
  void step() {
    const int from = pick(size());
    const int to = pick(size());
    if (from == to) return;
    std::deque<std::byte>& link = links_[static_cast<std::size_t>(from * size() + to)];
    if (pick(2) == 0)
      accept(endpoint(from), to, link);
    else
      deliver(endpoint(to), from, link);
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  std::size_t some(std::size_t most) { return most == 0 ? 0 : 1 + random_() % most; }

  // The sender's system accepts some bytes.
  void accept(SimulatedEndpoint& sender, int to, std::deque<std::byte>& link) {
    std::size_t room = some(capacity_ - link.size());
    std::size_t moved = 0;
    for (const std::span<const std::byte> part : sender.bytes_to(to).next(8)) {
      const std::size_t bytes = std::min(room, part.size());
      link.insert(link.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(bytes));
      room -= bytes;
      moved += bytes;
    }
    if (moved > 0) sender.mark_sent(to, moved);
  }

  // The receiver reads some bytes.
  void deliver(SimulatedEndpoint& receiver, int from, std::deque<std::byte>& link) {
    std::size_t left = some(link.size());
    while (left > 0) {
      const std::span<std::byte> into = receiver.bytes_from(from).next();
      if (into.empty()) return;
      const std::size_t bytes = std::min(left, into.size());
      std::copy_n(link.begin(), bytes, into.begin());
      link.erase(link.begin(), link.begin() + static_cast<std::ptrdiff_t>(bytes));
      receiver.bytes_from(from).received(bytes);
      left -= bytes;
    }
  }

  std::mt19937_64 random_;
  std::size_t capacity_;
  std::vector<std::deque<std::byte>> links_;  // from * size + to
  std::vector<std::shared_ptr<SimulatedEndpoint>> endpoints_;
};

}  // namespace lockstep::inline v0::allreduce
