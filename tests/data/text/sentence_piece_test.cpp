#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/text/text_schema.h"
#include "lockstep/data/text/tokenizer_file.h"
#include "tests/data/support.h"
#include "tests/paths.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using PieceTokens = std::vector<std::int32_t>;

std::filesystem::path reference_path(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/reference" / name;
}

std::string reference_bytes(const std::string& name) {
  std::ifstream file(reference_path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A protobuf field of at most 16383 bytes.
std::string bytes_field(unsigned tag, std::string_view bytes) {
  std::string field(1, static_cast<char>(tag << 3 | 2));
  field += static_cast<char>((bytes.size() & 0x7F) | 0x80);
  field += static_cast<char>(bytes.size() >> 7);
  return field.append(bytes);
}

/// A protobuf field of a number from 0 to 127.
std::string number_field(unsigned tag, int value) {
  std::string field;
  if (tag < 16)
    field += static_cast<char>(tag << 3);
  else
    field = {static_cast<char>((tag << 3 & 0x7F) | 0x80), static_cast<char>(tag >> 4)};
  return field + static_cast<char>(value);
}

std::string piece_field(std::string_view text, float score, int kind) {
  std::string message = bytes_field(1, text) + static_cast<char>(2 << 3 | 5);
  const auto bits = std::bit_cast<std::uint32_t>(score);
  for (int shift = 0; shift < 32; shift += 8) message += static_cast<char>(bits >> shift);
  return bytes_field(1, message + number_field(3, kind));
}

constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kUnused = 5, kByte = 6;

/// A model that adds no space, with the pieces <unk>, </s>, a, b and ab.
std::string small_model(std::string_view more = {}) {
  return piece_field("<unk>", 0, kUnknown) + piece_field("</s>", 0, kControl) +
         piece_field("a", -1, kNormal) + piece_field("b", -1, kNormal) +
         piece_field("ab", -1.5, kNormal) + bytes_field(3, number_field(3, 0)) + std::string(more);
}

std::shared_ptr<const Tokenizer> model_of(std::string_view bytes) {
  return parse_tokenizer_file(bytes, "m.model");
}

TEST(SentencePiece, MatchesTheLibrary) {
  const auto all = nlohmann::json::parse(reference_bytes("sentencepiece_expected.json"));
  for (const auto& [name, expected] : all.items()) {
    const std::string file = reference_path(fmt::format("sentencepiece_{}.model", name)).string();
    const TextSchema schema = TextSchema::for_tokenizer(file);
    const auto tokenizer = schema.open();
    EXPECT_EQ(tokenizer->name(), name == "unigram" ? "SentencePiece unigram" : "SentencePiece BPE");
    EXPECT_EQ(tokenizer->vocabulary_size(), expected["pieces"]);
    EXPECT_EQ(tokenizer->begin_token().value_or(-1), expected["begin"]);
    EXPECT_EQ(tokenizer->end_token().value_or(-1), expected["end"]);
    for (std::size_t i = 0; i < expected["texts"].size(); ++i) {
      const auto text = expected["texts"][i].get<std::string>();
      const auto tokens = tokenizer->encode(text);
      EXPECT_EQ(tokens, expected["tokens"][i].get<PieceTokens>()) << name << ": " << text;
      EXPECT_EQ(tokenizer->decode(tokens), expected["decoded"][i].get<std::string>())
          << name << ": " << text;
    }
    EXPECT_THAT(data_error_of([&] { tokenizer->encode("a\xff"); }), HasSubstr("at offset 1"));
    EXPECT_THAT(input_error_of([&] { tokenizer->decode(PieceTokens{-1}); }),
                HasSubstr("expected tokens from 0 to "));
  }
}

TEST(SentencePiece, FindsTheBestPieces) {
  const auto unigram = model_of(small_model());
  EXPECT_THAT(unigram->encode("aba"), ElementsAre(4, 2));
  EXPECT_THAT(unigram->encode("xyab"), ElementsAre(0, 4)) << "one unknown token";
  EXPECT_THAT(unigram->encode(""), IsEmpty());
  EXPECT_EQ(unigram->end_token(), 1);
  EXPECT_EQ(unigram->begin_token(), std::nullopt);
  EXPECT_EQ(unigram->decode(PieceTokens{0, 1, 4}), " \xE2\x81\x87 ab");
  const std::string worse = piece_field("ba", -0.25, kNormal) + piece_field("c", 9, kUnused);
  EXPECT_THAT(model_of(small_model(worse))->encode("abac"), ElementsAre(2, 5, 0));
  const std::string user = small_model(piece_field("bab", 0, kUser));
  EXPECT_THAT(model_of(user)->encode("abab"), ElementsAre(2, 5)) << "wherever it occurs";
  const std::string merged = small_model(bytes_field(2, number_field(3, 2)));
  EXPECT_EQ(model_of(merged)->name(), "SentencePiece BPE");
  EXPECT_THAT(model_of(merged)->encode("abba"), ElementsAre(4, 3, 2));
}

TEST(SentencePiece, PrefersTheFirstOfPathsThatAreEqualAsFloats) {
  // As doubles, the last sum of "ww", "w" is larger than the float of "w", "ww".
  const std::string pieces = piece_field("x", -1000, kNormal) + piece_field("w", -0.2F, kNormal) +
                             piece_field("ww", -0.2F, kNormal);
  EXPECT_THAT(model_of(small_model(pieces))->encode("xwww"), ElementsAre(5, 6, 7));
}

TEST(SentencePiece, AddsUpTheScoresOfTheWholeText) {
  // The two paths of the second word differ only in rounding, which depends on the first.
  const auto encoded_after = [](float score) {
    return model_of(small_model(piece_field("x", score, kNormal) +
                                piece_field("\u2581oo", -2.58F, kNormal) +
                                piece_field("\u2581ooo", -0.59F, kNormal) +
                                piece_field("oo", -2.58F, kNormal) +
                                piece_field("ooo", -0.59F, kNormal)))
        ->encode("x ooooo");
  };
  EXPECT_THAT(encoded_after(0), ElementsAre(5, 6, 9));
  EXPECT_THAT(encoded_after(-37), ElementsAre(5, 7, 8));
}

TEST(SentencePiece, RejectsInvalidModels) {
  const std::string whole = reference_bytes("sentencepiece_unigram.model");
  std::string map = {8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const auto with_map = [&](const std::string& bytes) {
    return small_model(bytes_field(3, bytes_field(2, bytes)));
  };
  EXPECT_NO_THROW(model_of(with_map(map + "a")));
  for (const auto& [bytes, reason] : {
           std::pair<std::string, std::string>{"", "it has no pieces"},
           {"[UNK]\n[SEP]\n", "it is no protobuf message of SentencePiece"},
           {whole.substr(0, whole.size() / 2), "it is no protobuf message of SentencePiece"},
           {small_model(bytes_field(2, number_field(3, 4))), "its \"model_type\" is 4"},
           {piece_field("a", 0, kNormal), "it has 0 unknown pieces"},
           {small_model(piece_field("?", 0, kUnknown)), "it has 2 unknown pieces"},
           {small_model(piece_field("a", 0, kNormal)), "\"a\" is two pieces"},
           {small_model(piece_field("", 0, kNormal)), "a piece has 0 bytes"},
           {small_model(piece_field(std::string(5000, 'a'), 0, kNormal)), "has 5000 bytes"},
           {small_model(piece_field("\xff", 0, kNormal)), "got the byte 0xff at offset 0"},
           {small_model(piece_field("c", std::numeric_limits<float>::infinity(), kNormal)),
            "a score is inf"},
           {small_model(piece_field("c", 0, 7)), "\"c\" is of the type 7"},
           {small_model(piece_field("<0x41>", 0, kByte)), "is a byte without \"byte_fallback\""},
           {small_model(bytes_field(2, number_field(35, 1))), "it has 0 pieces of bytes"},
           {small_model(piece_field("c", 0, kUnused) + bytes_field(2, number_field(3, 2))),
            "\"c\" is unused, which is not supported with BPE"},
           {small_model(bytes_field(5, bytes_field(2, "x"))), "it has a denormalizer"},
           {with_map("abc"), "its \"precompiled_charsmap\" is damaged"},
           {with_map(map), "its \"precompiled_charsmap\" is damaged"},
           {with_map(map + std::string(2000, 'x')), "has a text of 2000 bytes"},
       }) {
    const std::string error = data_error_of([&] { model_of(bytes); });
    EXPECT_THAT(error, HasSubstr("[m.model] expected tokenizer.json")) << reason;
    EXPECT_THAT(error, HasSubstr(reason));
  }
  EXPECT_EQ(parse_tokenizer_file(whole, "renamed")->name(), "SentencePiece unigram");
}

TEST(SentencePiece, ChecksTheBoundsOfRules) {
  // The offset of the root is outside of the trie; then the value of a rule is outside of the
  // texts.
  const auto encoded = [](const std::vector<std::uint32_t>& units) {
    std::string map(4, '\0');
    map[0] = static_cast<char>(units.size() * 4);
    map[1] = static_cast<char>(units.size() * 4 >> 8);
    for (const std::uint32_t unit : units)
      for (int shift = 0; shift < 32; shift += 8) map += static_cast<char>(unit >> shift);
    return model_of(small_model(bytes_field(3, bytes_field(2, map + "b"))))->encode("a");
  };
  std::vector<std::uint32_t> units(256);
  units[0] = 0xFFFFFC00;
  EXPECT_THAT(encoded(units), ElementsAre(2));
  units[0] = 0;
  units['a'] = 'a' | 1U << 8 | ('a' ^ 1U) << 10;  // its value is in unit 1
  units[1] = 1U << 31;
  EXPECT_THAT(encoded(units), ElementsAre(3)) << "becomes b";
  units[1] = 1U << 31 | 1000;
  EXPECT_THAT(encoded(units), ElementsAre(2));
}

}  // namespace
}  // namespace lockstep::inline v0::data
