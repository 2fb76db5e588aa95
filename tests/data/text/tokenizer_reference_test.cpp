// Tokens of hostile lines with each normalizer and pre-tokenizer, as the tokenizers library makes
// them (scripts/make_reference_tokenizers.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/data/text/tokenizer.h"
#include "lockstep/data/text/tokenizer_file.h"
#include "lockstep/data/text/unicode/split_pattern.h"
#include "tests/data/support.h"
#include "tests/paths.h"

namespace lockstep::inline v0::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const json& reference() {
  static const json expected = json::parse(std::ifstream(
      std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/reference/tokenizers_expected.json"));
  return expected;
}

std::vector<std::string> pieces_of(const SplitPattern& pattern, std::string_view text) {
  std::vector<std::string> pieces;
  pattern.for_each(text, [&](std::string_view piece, bool) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(TokenizerReference, HasTheTokensOfTheLibrary) {
  std::size_t cases = 0;
  for (const json& one : reference()["files"])
    for (const json& step : one["cases"]) {
      json file = one["file"];
      file["normalizer"] = step["normalizer"];
      file["pre_tokenizer"] = step["pre_tokenizer"];
      const auto tokenizer = parse_tokenizer_file(file.dump(), "tokenizer.json");
      for (std::size_t i = 0; i < reference()["lines"].size(); ++i)
        EXPECT_EQ(json(tokenizer->encode(reference()["lines"][i].get<std::string>())),
                  step["tokens"][i])
            << tokenizer->name() << ' ' << step["normalizer"] << ' ' << step["pre_tokenizer"] << ' '
            << reference()["lines"][i];
      ++cases;
    }
  EXPECT_GT(cases, 45U);
}

TEST(TokenizerReference, SplitsByPatternsAsOniguruma) {
  for (const auto& [regex, pieces] : reference()["patterns"].items()) {
    const SplitPattern pattern(regex);
    for (std::size_t i = 0; i < reference()["lines"].size(); ++i)
      EXPECT_EQ(json(pieces_of(pattern, reference()["lines"][i].get<std::string>())), pieces[i])
          << regex << ' ' << reference()["lines"][i];
  }
}

TEST(SplitPattern, FindsMatchesAndWhatIsBetween) {
  std::string found;
  SplitPattern("a{2,3}b?|c").for_each("xaaaabc!", [&](std::string_view piece, bool is_match) {
    found.append(piece).append(is_match ? "+ " : "- ");
  });
  EXPECT_EQ(found, "x- aaa+ ab- c+ !- ");
  EXPECT_THAT(pieces_of(SplitPattern("(?:ab|a)b"), "abb ab"),
              ::testing::ElementsAre("abb", " ", "ab"));
  EXPECT_THAT(pieces_of(SplitPattern("a*+a|b"), "aab"), ::testing::ElementsAre("aa", "b"));
  EXPECT_THAT(pieces_of(SplitPattern::literal("aa"), "aaaba"), ::testing::ElementsAre("aa", "aba"));
}

TEST(SplitPattern, NamesWhatItDoesNotSupport) {
  const auto refusal = [](std::string_view regex) -> std::string {
    try {
      SplitPattern pattern(regex);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  for (const auto& [regex, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", "no or too many characters"},
           {std::string(4097, 'a'), "no or too many characters"},
           {"a||b", "an empty alternative"},
           {"|", "an empty alternative"},
           {"(a)", "\"(\" there"},
           {"a(?=b)", "\"(\" there"},
           {"(?:a", "an end within a class or group"},
           {"(?:a)+", "a repeated group"},
           {"(?:a+)", "\"+\" there"},
           {"[a", "an end within a class or group"},
           {"[", "an end within a class or group"},
           {"[a[b]]", "a class within a class"},
           {"[b-a]", "a malformed range in a class"},
           {"\\p{Han}", "the property \"Han\""},
           {"\\p{", "the property \"\""},
           {"\\b", "\"\\b\""},
           {"\\w", "\"\\w\""},
           {"\\1", "\"\\1\""},
           {"\\", "an end within a class or group"},
           {"a+?", "a lazy quantifier"},
           {"a{3,2}", "a malformed {"},
           {"a{99999999999999999999}", "a malformed {"},
           {"a{", "a malformed {"},
           {"a.b", "\".\" there"},
           {"^a", "\"^\" there"}})
    EXPECT_THAT(refusal(regex), HasSubstr("its pattern has " + reason + ", which is not supported"))
        << regex;
}

TEST(SplitPattern, StopsWhereAPatternTakesForever) {
  const SplitPattern pattern("a*a*a*a*a*a*b");
  EXPECT_THAT(data_error_of([&] { pieces_of(pattern, std::string(2000, 'a')); }),
              HasSubstr("[text] expected a text that the pattern of its tokenizer can split in "
                        "linear time, got 2000 bytes that take more than"));
}

}  // namespace
}  // namespace lockstep::inline v0::data
