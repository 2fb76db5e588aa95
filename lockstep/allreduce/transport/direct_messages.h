// Messages between two members at a time, for measurements: it waits without yielding the core.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/allreduce/transport/message_buffers.h"
#include "lockstep/allreduce/transport/transport.h"

namespace lockstep::inline v0::allreduce {

/// Both members call matching functions, with the same size, and nothing else between them
/// meanwhile. Functions throw the errors of the transport, and take its turn.
class DirectMessages {
 public:
  /// For messages of at most `bytes`.
  DirectMessages(Transport& transport, std::size_t bytes);
  DirectMessages(const DirectMessages&) = delete;
  DirectMessages& operator=(const DirectMessages&) = delete;

  std::span<std::byte> outgoing() const { return buffers_.memory(0); }  ///< the next to be sent
  std::span<std::byte> incoming() const { return buffers_.memory(1); }  ///< the last received

  void send(int to, std::size_t bytes);
  void receive(int from, std::size_t bytes);
  /// Both at the same time.
  void exchange(int to, int from, std::size_t bytes);

 private:
  void wait(std::size_t slot);

  Transport& transport_;
  MessageBuffers buffers_;
};

}  // namespace lockstep::inline v0::allreduce
