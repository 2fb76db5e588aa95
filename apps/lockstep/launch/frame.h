// What the tasks of a launch tell each other, and how it travels over a stream of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::apps::launch {

enum class FrameKind : char {
  arrive = 'A',   ///< to the first task: who comes (Arrival)
  welcome = 'W',  ///< back: it belongs to the job
  refuse = 'R',   ///< back: leave with a status and a message
  probe = 'P',    ///< to a host: try to reach these others (reach.h)
  probed = 'Q',   ///< back: which it cannot reach
  call = 'C',     ///< of an agent of mpirun: start the daemon of a host
  run = 'X',      ///< to a host: start its daemon (daemon.h)
  output = 'O',   ///< back: what it prints
  errors = 'E',   ///< back: the same on standard error
  started = 'T',  ///< back: ranks of MPI have been seen there
  ended = 'Z',    ///< back: its exit status
  signal = 'S',   ///< to the first task: a signal that another task was sent
  leave = 'L',    ///< to all: the job is over, with this exit status
};

struct Frame {
  FrameKind kind = FrameKind::leave;
  std::string text = {};
};

/// Four bytes with the length of the text, the least first; the kind; the text.
std::string encode(const Frame& frame);

/// Takes a stream apart.
class FrameReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The next whole frame.
  std::optional<Frame> next();
  /// Whether what came is no stream of frames; nothing comes out any more.
  bool is_broken() const { return broken_; }

 private:
  std::string bytes_;
  std::size_t begin_ = 0;  // of what has not come out yet
  bool broken_ = false;
};

}  // namespace lockstep::apps::launch
