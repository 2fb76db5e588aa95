#include "apps/lockstep/process_setup.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>

namespace lockstep::apps {
namespace {

// Both ends of a new terminal of so many columns, as a launcher or a terminal window makes it.
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

  int outer = -1;
  int inner = -1;
  bool opened = false;
};

TEST(IsWatched, NotAPipe) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_FALSE(is_watched(ends[1]));
  close(ends[0]);
  close(ends[1]);
}

TEST(IsWatched, ATerminalWithASize) {
  const Terminal terminal(80);
  ASSERT_TRUE(terminal.opened);
  EXPECT_TRUE(is_watched(terminal.inner));
}

TEST(IsWatched, NotATerminalThatALauncherMadeWhileItsOwnOutputIsElsewhere) {
  const Terminal terminal(0);
  ASSERT_TRUE(terminal.opened);
  // This process's parent has no descriptor of such a high number.
  constexpr int kHigh = 200;
  ASSERT_EQ(dup2(terminal.inner, kHigh), kHigh);
  EXPECT_FALSE(is_watched(kHigh));
  close(kHigh);
}

}  // namespace
}  // namespace lockstep::apps
