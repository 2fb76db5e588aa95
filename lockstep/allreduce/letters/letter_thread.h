// The thread that moves letters between members, beside the collectives of the same ranks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "lockstep/allreduce/letters/point_to_point.h"
#include "lockstep/allreduce/transport/transport.h"

namespace lockstep::inline v0::allreduce {

/// Letters of this rank. Thread-safe. The thread sleeps while there are none; while another thread
/// has the turn of the transport, in a collective, that one moves them.
class LetterThread {
 public:
  /// `transport` is used by this object alone.
  explicit LetterThread(std::shared_ptr<Transport> transport);
  LetterThread(const LetterThread&) = delete;
  LetterThread& operator=(const LetterThread&) = delete;
  ~LetterThread();

  /// Starts to send `bytes`, which stay valid and unchanged until the letter is done. Throws Error
  /// (input) unless `to` is another member.
  std::shared_ptr<Letter> send(int to, std::int32_t tag, std::span<const std::byte> bytes);
  /// Starts to receive a letter with at most the bytes of `memory`, which stays valid until it is
  /// done. Throws Error (input) unless `from` is another member or kAnySource.
  std::shared_ptr<Letter> receive(int from, std::int32_t tag, std::span<std::byte> memory);
  /// Returns when the letter is done. Throws Error (communication) if it cannot be.
  void wait(const Letter& letter);
  /// Whether the letter is done. Throws like wait().
  bool test(const Letter& letter);
  /// Ends all letters with an error.
  void fail(const ErrorMessage& failure);
  /// Sends what was started, for at most a second; what is not done then fails. Nothing can be
  /// started any more.
  void end();

 private:
  std::shared_ptr<Letter> add(std::shared_ptr<Letter> letter);
  bool move();
  void work();

  std::shared_ptr<Transport> transport_;
  std::mutex mutex_;  // guards all but the transport, whose turn is taken first
  std::condition_variable started_;
  std::condition_variable done_;
  PointToPoint letters_;
  std::list<std::shared_ptr<Letter>> new_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::inline v0::allreduce
