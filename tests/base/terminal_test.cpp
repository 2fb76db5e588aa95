#include "lockstep/base/terminal.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "tests/support/terminal.h"

namespace lockstep::inline v0 {
namespace {

TEST(IsWatched, RejectsAPipe) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_FALSE(is_watched(ends[1]));
  close(ends[0]);
  close(ends[1]);
}

TEST(IsWatched, AcceptsATerminalWithASize) {
  const Terminal terminal(80);
  ASSERT_TRUE(terminal.opened);
  EXPECT_TRUE(is_watched(terminal.inner));
}

TEST(IsWatched, RejectsALaunchersPseudoTerminalIfTheLauncherHasNone) {
  const Terminal terminal(0);
  ASSERT_TRUE(terminal.opened);
  // This process's parent has no descriptor of such a high number.
  constexpr int kHigh = 200;
  ASSERT_EQ(dup2(terminal.inner, kHigh), kHigh);
  EXPECT_FALSE(is_watched(kHigh));
  close(kHigh);
}

TEST(MessageStart, ClearsTheLineOfATerminal) {
  const Terminal terminal(80);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const int before = dup(STDERR_FILENO);
  dup2(terminal.inner, STDERR_FILENO);
  const std::string_view on_terminal = message_start();
  dup2(ends[1], STDERR_FILENO);
  const std::string_view on_pipe = message_start();
  dup2(before, STDERR_FILENO);
  for (const int descriptor : {before, ends[0], ends[1]}) close(descriptor);
  EXPECT_EQ(on_terminal, "\r\x1b[K");
  EXPECT_EQ(on_pipe, "");
}

TEST(TerminalColumns, FollowTheWindow) {
  const Terminal terminal(80);
  ASSERT_TRUE(terminal.opened);
  EXPECT_EQ(terminal_columns(terminal.inner), 80);
  const winsize narrow{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(ioctl(terminal.outer, TIOCSWINSZ, &narrow), 0);
  EXPECT_EQ(terminal_columns(terminal.inner), 40);
}

TEST(WrapWords, BreaksBetweenWords) {
  EXPECT_EQ(wrap_words("a bc def", 0, 8), "a bc def");
  EXPECT_EQ(wrap_words("a bc def", 0, 7), "a bc\ndef");
  EXPECT_EQ(wrap_words("a bc def", 2, 6), "a bc\n  def") << "begins at column 2";
  EXPECT_EQ(wrap_words("a /a/long/path b", 0, 6), "a\n/a/long/path\nb");
  EXPECT_EQ(wrap_words("", 0, 6), "");
}

TEST(TerminalColumns, UseTheEnvironmentWithoutATerminal) {
  ASSERT_EQ(setenv("COLUMNS", "132", 1), 0);
  EXPECT_EQ(terminal_columns(-1), 132);
  for (const char* nonsense : {"", "0", "-5", "wide"}) {
    ASSERT_EQ(setenv("COLUMNS", nonsense, 1), 0);
    EXPECT_EQ(terminal_columns(-1), 80) << nonsense;
  }
  ASSERT_EQ(unsetenv("COLUMNS"), 0);
  EXPECT_EQ(terminal_columns(-1), 80);
}

}  // namespace
}  // namespace lockstep::inline v0
