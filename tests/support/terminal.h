// A pseudo-terminal.
#pragma once

#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <string>

namespace lockstep::inline v0 {

/// Both ends of a terminal with this number of columns; 0: without a size.
struct Terminal {
  explicit Terminal(unsigned short columns) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    opened = openpty(&outer, &inner, nullptr, nullptr, columns > 0 ? &size : nullptr) == 0;
  }
  ~Terminal() {
    close(outer);
    close(inner);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Reads the output to `inner` until none arrives for some milliseconds; a line ends with "\r\n".
  const std::string& text() {
    std::array<char, 4096> part;
    pollfd ready{.fd = outer, .events = POLLIN, .revents = 0};
    while (poll(&ready, 1, kIdleMilliseconds) == 1) {
      const ssize_t size = read(outer, part.data(), part.size());
      if (size <= 0) break;
      text_.append(part.data(), static_cast<std::size_t>(size));
    }
    return text_;
  }

  int outer = -1;
  int inner = -1;
  bool opened = false;

 private:
  static constexpr int kIdleMilliseconds = 10;  // the kernel forwards the text

  std::string text_;
};

}  // namespace lockstep::inline v0
