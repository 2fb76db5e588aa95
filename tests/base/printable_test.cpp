#include "lockstep/base/printable.h"

#include <gtest/gtest.h>
#include <spdlog/logger.h>

#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::inline v0 {
namespace {

using namespace std::string_view_literals;

// A sequence that clears a terminal, one that renames its window, and a forged line.
constexpr std::string_view kAttack = "a\x1b[2J\x1b]0;owned\a\nlockstep: error: forged";
constexpr std::string_view kShown = "a\\x1b[2J\\x1b]0;owned\\x07\\nlockstep: error: forged";

TEST(Printable, EscapesControlCharactersAndInvalidUtf8) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", ""},
      {"plain text, \\x1b and ä €", "plain text, \\x1b and ä €"},
      {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},  // U+1F600
      {"\0"sv, "\\x00"},
      {"a\nb\rc\td", "a\\nb\\rc\\td"},
      {kAttack, kShown},
      {"\x7f", "\\x7f"},
      {"\xc2\x9b"
       "31m",
       "\\xc2\\x9b31m"},  // U+009B, the CSI of C1, as UTF-8
      {"\x9b"
       "31m",
       "\\x9b31m"},                                  // and as one byte
      {"\xc2\xa0", "\xc2\xa0"},                      // U+00A0, the first character after C1
      {"\xe2\x80\xae", "\\xe2\\x80\\xae"},           // U+202E turns the direction of writing
      {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"},           // U+2028 separates lines
      {"\xc3", "\\xc3"},                             // cut off
      {"\xc0\x8a", "\\xc0\\x8a"},                    // a line break in two bytes
      {"\xe0\x82\x9b", "\\xe0\\x82\\x9b"},           // U+009B in three
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // a surrogate
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // above U+10FFFF
      {"\xc3\x1b", "\\xc3\\x1b"}};
  for (const auto& [text, shown] : cases) {
    EXPECT_EQ(printable(text), shown);
    EXPECT_EQ(printable(printable(text)), shown) << "a second time";
  }
}

TEST(Printable, KeepsRequestedCharacters) {
  EXPECT_EQ(printable("a\tb\nc\r\x1b", "\n\t"), "a\tb\nc\\r\\x1b");
  EXPECT_EQ(printable("\0\n"sv, "\n"), "\\x00\n");
}

TEST(Printable, KeepsErrorsOnOneLine) {
  const Error error(ErrorCategory::data, kAttack, "expected a table", "got \xff");
  EXPECT_EQ(error.what(), "[" + std::string(kShown) + "] expected a table, got \\xff");
  EXPECT_EQ(error.message().where, kAttack) << "the parts are exact";
}

TEST(Printable, KeepsLogMessagesOnOneLine) {
  testing::internal::CaptureStderr();
  make_logger()->warn("column {}", kAttack);
  make_logger({.rank = 1, .ranks = 2})->info("column {}", kAttack);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: warning: column " + std::string(kShown) + "\nlockstep: [rank 1] column " +
                std::string(kShown) + "\n");
}

}  // namespace
}  // namespace lockstep::inline v0
