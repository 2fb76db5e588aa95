#include "lockstep/data/text/target_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using TextNumbers = std::vector<std::int32_t>;

/// Bytes, with the special tokens of a test.
class MarkedBytes final : public Tokenizer {
 public:
  MarkedBytes(std::optional<std::int32_t> begin, std::optional<std::int32_t> end)
      : begin_(begin), end_(end) {}
  TextNumbers encode(std::string_view text) const override { return bytes_.encode(text); }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    return bytes_.decode(tokens);
  }
  std::int64_t vocabulary_size() const override { return bytes_.vocabulary_size(); }
  std::string name() const override { return "marked bytes"; }
  std::optional<std::int32_t> begin_token() const override { return begin_; }
  std::optional<std::int32_t> end_token() const override { return end_; }

 private:
  BytesTokenizer bytes_;
  std::optional<std::int32_t> begin_;
  std::optional<std::int32_t> end_;
};

/// The tokens and targets of a text.
struct TargetText {
  TextNumbers tokens;
  TextNumbers targets;
  bool is_cut = false;
};

TargetText encode_target(const Tokenizer& tokenizer, std::string_view text, std::size_t length) {
  const TextTokens target = target_tokens(tokenizer, text, length);
  TargetText encoded{TextNumbers(length), TextNumbers(length), target.is_cut};
  write_target(target.tokens, TargetVocabulary::for_tokenizer(tokenizer), encoded.tokens,
               encoded.targets);
  return encoded;
}

TEST(TargetVocabulary, AddsTheTokensThatTheTokenizerLacks) {
  struct Case {
    MarkedBytes tokenizer;
    std::int32_t begin;
    std::int32_t end;
    std::int64_t size;
  };
  for (const auto& [tokenizer, begin, end, size] :
       {Case{{std::nullopt, std::nullopt}, 256, 257, 258}, Case{{std::nullopt, 7}, 7, 7, 256},
        Case{{5, 7}, 5, 7, 256}, Case{{5, std::nullopt}, 5, 256, 257}}) {
    const TargetVocabulary vocabulary = TargetVocabulary::for_tokenizer(tokenizer);
    EXPECT_EQ(vocabulary.begin, begin);
    EXPECT_EQ(vocabulary.end, end);
    EXPECT_EQ(vocabulary.size, size);
  }
}

TEST(EncodeTarget, AddsBeginAndEnd) {
  const BytesTokenizer bytes;
  const TargetText text = encode_target(bytes, "ab", 4);
  EXPECT_EQ(text.tokens, (TextNumbers{256, 'a', 'b', 0}));
  EXPECT_EQ(text.targets, (TextNumbers{'a', 'b', 257, -1}));
  EXPECT_FALSE(text.is_cut);
  const TargetText full = encode_target(bytes, "ab", 3);
  EXPECT_EQ(full.targets, (TextNumbers{'a', 'b', 257}));
  EXPECT_FALSE(full.is_cut);
}

TEST(EncodeTarget, CutsTextsWhoseEndDoesNotFit) {
  const BytesTokenizer bytes;
  for (const char* const long_text : {"abc", "abcdefgh"}) {
    const TargetText text = encode_target(bytes, long_text, 3);
    EXPECT_EQ(text.tokens, (TextNumbers{256, 'a', 'b'}));
    EXPECT_EQ(text.targets, (TextNumbers{'a', 'b', 'c'})) << "without an end";
    EXPECT_TRUE(text.is_cut);
  }
  EXPECT_EQ(encode_target(bytes, "abc", 1).tokens, (TextNumbers{256}));
  EXPECT_EQ(encode_target(bytes, "abc", 1).targets, (TextNumbers{'a'}));
}

TEST(EncodeTarget, RefusesATextWithoutTokens) {
  EXPECT_EQ(data_error_of([] { encode_target(BytesTokenizer(), "", 3); }),
            "[text] expected a text of at least one token; the text is empty");
}

TEST(WholeText, IsBetweenBeginAndEnd) {
  const MarkedBytes marked(5, 7);
  EXPECT_EQ(whole_text(marked, {1, 2}, 4).tokens, (TextNumbers{5, 1, 2, 7}));
  EXPECT_FALSE(whole_text(marked, {1, 2}, 4).is_cut);
  EXPECT_EQ(whole_text(marked, {1, 2}, 3).tokens, (TextNumbers{5, 1, 7}));
  EXPECT_TRUE(whole_text(marked, {1, 2}, 3).is_cut);
  EXPECT_EQ(whole_text(MarkedBytes(std::nullopt, 7), {1, 2, 3}, 2).tokens, (TextNumbers{1, 2}));
  EXPECT_THAT(input_error_of([&] { whole_text(marked, {1}, 2); }),
              testing::HasSubstr("expected a length of at least 3"));
}

}  // namespace
}  // namespace lockstep::inline v0::data
