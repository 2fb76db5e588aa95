#include "lockstep/data/text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/data/text/byte_pairs.h"
#include "lockstep/data/text/text_schema.h"
#include "lockstep/data/text/tokenizer_file.h"
#include "lockstep/data/text/unicode/unicode.h"
#include "lockstep/data/text/unicode/word_splitter.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

std::string utf8(std::u32string_view codes) {
  std::string text;
  for (const char32_t code : codes) append_utf8(code, text);
  return text;
}

std::string vocabulary_of(std::string_view text) {
  CharacterSet characters;
  characters.add(text);
  return characters.vocabulary();
}

TEST(CharsTokenizer, NumbersCharactersInAscendingOrder) {
  const std::string text = utf8(U"zaé€😀a\n");
  const CharsTokenizer tokenizer(vocabulary_of(text));
  EXPECT_EQ(tokenizer.vocabulary_size(), 6);
  const Tokens tokens = tokenizer.encode(text);
  EXPECT_THAT(tokens, ElementsAre(2, 1, 3, 4, 5, 1, 0));
  EXPECT_EQ(tokenizer.decode(tokens), text);
  EXPECT_EQ(tokenizer.end_token(), std::nullopt);
  EXPECT_EQ(data_error_of([&] { tokenizer.encode("ab"); }),
            "[text] expected characters of the training text (tokenizer=bytes reads any text), got "
            "U+0062 at offset 1");
  for (const std::int32_t wrong : {-1, 6})
    EXPECT_EQ(input_error_of([&] { tokenizer.decode(Tokens{wrong}); }),
              fmt::format("[tokens] expected tokens from 0 to 5, got {}", wrong));
  for (const char* wrong : {"", "ba", "aa"})
    EXPECT_THAT(data_error_of([&] { CharsTokenizer{wrong}; }), HasSubstr("[vocabulary]"));
}

TEST(CharsTokenizer, RefusesBytesThatAreNotUtf8) {
  for (const char* wrong : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xe2\x82",
                            "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xff", "\xc3\x28"})
    EXPECT_THAT(data_error_of([&] { vocabulary_of(std::string("ab") + wrong); }),
                HasSubstr(fmt::format("expected text in UTF-8, got the byte 0x{:02x} at offset 2",
                                      static_cast<unsigned char>(wrong[0]))));
}

TEST(BytesTokenizer, AcceptsAnyBytes) {
  const BytesTokenizer tokenizer;
  const std::string bytes("a\xff\0", 3);
  EXPECT_THAT(tokenizer.encode(bytes), ElementsAre(97, 255, 0));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
  EXPECT_EQ(tokenizer.vocabulary_size(), 256);
}

TEST(BytePairs, SplitsWordsAsGpt2) {
  const auto words_of = [](const std::string& text) {
    std::vector<std::string> words;
    const WordSplitter splitter({{.pattern = SplitPattern(kGpt2Words)}});
    splitter.split(text, [&](std::string_view word) { words.emplace_back(word); });
    return words;
  };
  EXPECT_THAT(words_of("We'll  go, 42x!? \n\nno "),
              ElementsAre("We", "'ll", " ", " go", ",", " 42", "x", "!?", " \n", "\n", "no", " "));
  EXPECT_THAT(words_of("'T's"), ElementsAre("'", "T", "'s"));
  EXPECT_THAT(words_of(utf8(U"éа漢 ²½…")), ElementsAre(utf8(U"éа漢"), utf8(U" ²½"), utf8(U"…")));
}

/// A file whose vocabulary has the 256 bytes, in their order as numbers, then `merges`.
json byte_pairs_file(const std::vector<std::string>& merges) {
  json vocabulary;
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    vocabulary[utf8(std::u32string{is_printable ? byte : next++})] = byte;
  }
  for (const std::string& merge : merges) {
    std::string token = merge;
    token.erase(token.find(' '), 1);
    vocabulary[token] = vocabulary.size();
  }
  const auto end = vocabulary.size();
  return {{"added_tokens", {{{"content", "<|endoftext|>"}, {"id", end}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

std::shared_ptr<const Tokenizer> parsed(const json& file) {
  return parse_tokenizer_file(file.dump(), "tokenizer.json");
}

TEST(BytePairs, MergesTheFirstPairsFirst) {
  // 256: "he", 257: "ll", 258: " h", 259: "hell"; 260 is the end.
  const json file = byte_pairs_file({"h e", "l l", "\xc4\xa0 h", "he ll"});
  const auto tokenizer = parsed(file);
  EXPECT_EQ(tokenizer->name(), "byte-level BPE");
  EXPECT_EQ(tokenizer->vocabulary_size(), 261);
  EXPECT_EQ(tokenizer->end_token(), 260);
  const std::string text = "hello hello h" + utf8(U"é");
  const Tokens tokens = tokenizer->encode(text);
  EXPECT_THAT(tokens, ElementsAre(259, 'o', ' ', 259, 'o', 258, 0xC3, 0xA9));
  EXPECT_EQ(tokenizer->decode(tokens), text);
  EXPECT_THAT(tokenizer->encode("he<|endoftext|>he"), ElementsAre(256, 260, 256));
  EXPECT_THAT(tokenizer->encode(std::string(5, 'l')), ElementsAre(257, 257, 'l'));
  EXPECT_THAT(data_error_of([&] { tokenizer->encode("he\xff"); }), HasSubstr("at offset 2"));
  json spaced = file;
  spaced["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(parsed(spaced)->encode("h<|endoftext|> h"), ElementsAre(258, 260, 258));
  json pairs = file;
  pairs["model"]["merges"][0] = {"h", "e"};
  EXPECT_EQ(parsed(pairs)->encode(text), tokens);
  // The merges of a vocabulary of 400,000; all but the first ones are equal.
  pairs["model"]["merges"].insert(pairs["model"]["merges"].end(), 400'000, json{"l", "l"});
  EXPECT_EQ(parsed(pairs)->encode(text), tokens);
}

json word_piece_file() {
  json vocabulary;
  for (const char* token : {"[UNK]", "[SEP]", "un", "##aff", "##able", "a", ",", "cafe", "##s"})
    vocabulary[token] = vocabulary.size();
  vocabulary[utf8(U"漢")] = vocabulary.size();
  vocabulary[utf8(U"я")] = vocabulary.size();
  return {{"added_tokens",
           {{{"content", "[UNK]"}, {"id", 0}, {"normalized", false}},
            {{"content", "[SEP]"}, {"id", 1}, {"normalized", false}}}},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}}};
}

TEST(WordPiece, FindsTheLongestPiecesOfNormalizedWords) {
  const auto tokenizer = parsed(word_piece_file());
  struct Case {
    std::string text;
    Tokens tokens;
  };
  for (const Case& one :
       {Case{"Unaffable,a", {2, 3, 4, 6, 5}}, Case{utf8(U"CAFÉS  cafe\u0301"), {7, 8, 7}},
        Case{utf8(U"a漢a"), {5, 9, 5}}, Case{utf8(U"Я\u00a0я"), {10, 10}},
        Case{utf8(U"c\u200bafe"), {7}}, Case{utf8(U"cafe\u1734"), {7}},
        Case{utf8(U"cafe\u0c04"), {0}},  // a mark since Unicode 11, which the library predates
        Case{"unx a[SEP]a", {0, 5, 1, 5}}, Case{std::string(101, 'a') + " a", {0, 5}},
        Case{" \t", {}}})
    EXPECT_EQ(tokenizer->encode(one.text), one.tokens) << one.text;
  EXPECT_EQ(tokenizer->decode(Tokens{2, 3, 4, 6, 5}), "unaffable , a");
  EXPECT_EQ(tokenizer->end_token(), 1);
  EXPECT_EQ(tokenizer->begin_token(), std::nullopt);
  json classified = word_piece_file();
  classified["model"]["vocab"]["[CLS]"] = 11;
  EXPECT_EQ(parsed(classified)->begin_token(), 11);
  json cased = word_piece_file();
  cased["normalizer"]["lowercase"] = false;
  EXPECT_THAT(parsed(cased)->encode("a A"), ElementsAre(5, 0));
  json accents = word_piece_file();
  accents["normalizer"]["strip_accents"] = false;
  accents["model"]["vocab"][utf8(U"i\u0307")] = 11;
  EXPECT_THAT(parsed(accents)->encode(utf8(U"\u0130")), ElementsAre(11)) << "as in Rust";
}

TEST(WordPiece, ReadsAVocabularyOfLines) {
  const std::string lines = "[UNK]\n[SEP]\nun\n##able\r\na";
  const auto tokenizer = parse_tokenizer_file(lines, "vocab.txt");
  EXPECT_EQ(tokenizer->vocabulary_size(), 5);
  EXPECT_THAT(tokenizer->encode("Unable A[SEP]"), ElementsAre(2, 3, 4, 1));
  EXPECT_EQ(tokenizer->begin_token(), std::nullopt);
  EXPECT_EQ(parse_tokenizer_file(lines + "\n[CLS]", "vocab.txt")->begin_token(), 5);
  const auto cased = parse_tokenizer_file(lines + "\nThe", "vocab.txt");
  EXPECT_THAT(cased->encode("The the A a"), ElementsAre(5, 0, 0, 4)) << "a capital letter";
}

TEST(TokenizerFile, RejectsInvalidFiles) {
  struct Case {
    std::function<void(json&)> change;
    const char* reason;
  };
  const auto set = [](const char* path, const json& value) {
    return [path, value](json& file) { file[json::json_pointer(path)] = value; };
  };
  for (const Case& wrong :
       {Case{[](json& file) { file.erase("model"); }, "it has no \"model\""},
        Case{set("/model/type", "Unigram"), "its model is \"Unigram\""},
        Case{set("/model/vocab", json::array()), "its vocabulary is an array of 0"},
        Case{set("/model/vocab/a", -1), "the number of \"a\" is -1"},
        Case{set("/model/vocab/a", 1 << 20), "the number of \"a\" is 1048576"},
        Case{set("/model/vocab/a", 100'000), "the number of \"a\" is 100000"},
        Case{set("/added_tokens/0/id", 100'000), "is 100000"},
        Case{set("/model/vocab/a", 98), "have the number 98"},
        Case{[](json& file) { file["model"]["vocab"].erase("a"); }, "its vocabulary has no \"a\""},
        Case{set("/model/vocab/\xe6\xbc\xa2", 300), "has a character that stands for no byte"},
        Case{set("/model/merges/0", "xy"), "a merge is \"xy\""},
        Case{set("/model/merges/0", "x y"), "its vocabulary has no \"xy\""},
        Case{set("/model/dropout", 0.1), "its \"dropout\" is 0.1, which is not supported"},
        Case{set("/pre_tokenizer/type", "Split"), "its pre_tokenizer \"Split\" has no pattern"},
        Case{set("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "a\\b"}}}}),
             "its pre_tokenizer \"Split\" has the pattern \"a\\\\b\": its pattern has \"\\b\", "
             "which is not supported"},
        Case{set("/pre_tokenizer",
                 {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Gone"}}),
             "its \"behavior\" is \"Gone\", which is not supported"},
        Case{set("/pre_tokenizer/type", "Metaspace"),
             "its pre_tokenizer \"Metaspace\" is not supported"},
        Case{set("/pre_tokenizer/type", "Whitespace"),
             "its model is \"BPE\", and its pre_tokenizer \"Whitespace\", without \"ByteLevel\""},
        Case{set("/pre_tokenizer", nullptr), "and its pre_tokenizer none, without"},
        Case{set("/pre_tokenizer",
                 {{"type", "Sequence"},
                  {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}}),
             "its pre_tokenizer \"Digits\" follows \"ByteLevel\""},
        Case{set("/pre_tokenizer", {{"type", "Sequence"}}), "its \"pretokenizers\" is null"},
        Case{set("/normalizer", {{"type", "Sequence"},
                                 {"normalizers", {{{"type", "NFD"}}, {{"type", "Replace"}}}}}),
             "its normalizer \"Replace\" is not supported"},
        Case{set("/normalizer", {{"type", "Sequence"}}), "its \"normalizers\" is null"},
        Case{set("/added_tokens/0/single_word", true), "its \"single_word\" is true"}}) {
    json file = byte_pairs_file({"h e"});
    wrong.change(file);
    const std::string error = data_error_of([&] { parsed(file); });
    EXPECT_THAT(error, HasSubstr("[tokenizer.json] expected tokenizer.json with byte-level BPE"));
    EXPECT_THAT(error, HasSubstr(wrong.reason));
  }
  for (const auto& [lines, reason] : {std::pair{"a\nb", "it has no [UNK]"},
                                      {"[UNK]\na\na", "line 3 has the token of an earlier one"},
                                      {"[UNK]\n\na", "the token 1 is empty"},
                                      {"[UNK]\n\xff", "got the byte 0xff at offset 6"}})
    EXPECT_THAT(data_error_of([&] { parse_tokenizer_file(lines, "v"); }), HasSubstr(reason));
  EXPECT_THAT(data_error_of([] { parse_tokenizer_file("{\"model\": ", "t"); }),
              HasSubstr("[t] expected JSON"));
  EXPECT_THAT(data_error_of([] { parse_tokenizer_file("<!DOCTYPE html><html>", "t"); }),
              HasSubstr("; it is an HTML page"));
}

TEST(AddedTokens, SplitATextAtTheLongest) {
  const AddedTokens tokens(
      {{"<a>", 1}, {"<ab>", 2}, {"<", 3}, {"<ab", 4}, {"<a>", 9}, {"\xff", 5}});
  const auto parts_of = [&](const AddedTokens& added, std::string_view text) {
    std::string parts;
    added.split(
        text, [&](std::int32_t token) { parts += fmt::format("{} ", token); },
        [&](std::string_view piece) { parts += fmt::format("'{}' ", piece); });
    return parts;
  };
  EXPECT_EQ(parts_of(tokens, "x<a>y<ab><ab<a<"), "'x' 1 'y' 2 4 3 'a' 3 ");
  EXPECT_EQ(parts_of(tokens, "<ab\xff"), "4 5 ");
  EXPECT_EQ(parts_of(tokens, ""), "");
  EXPECT_EQ(parts_of(AddedTokens(), "<a>"), "'<a>' ");
  // Would take minutes if tokens were compared with all others, or at each position of the text.
  std::vector<AddedTokens::Token> all;
  for (std::int32_t i = 0; i < 300'000; ++i) all.push_back({fmt::format("<{:06}>", i), i});
  const AddedTokens many(std::move(all));
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "<00000";
  EXPECT_EQ(parts_of(many, text + "7>"), "'" + text.substr(6) + "' 7 ");
}

TEST(TextSchema, OpensTheContentIfTheFileIsMissingOrChanged) {
  const TemporaryDirectory directory;
  const auto file = directory / "tokenizer.json";
  write_bytes(file, word_piece_file().dump());
  TextSchema trained = TextSchema::for_tokenizer(file.string());
  trained.length = 8;
  ASSERT_NE(trained.content, nullptr);
  EXPECT_EQ(*trained.content, word_piece_file().dump());
  EXPECT_EQ(trained.why_content(), "");
  TextSchema restored = TextSchema::from_checkpoint(trained.to_json(), "state.json");
  EXPECT_EQ(restored.content, nullptr);
  EXPECT_EQ(restored, trained);
  EXPECT_EQ(*restored.find_content(), *trained.content) << "from the file";

  write_bytes(file, word_piece_file().dump(1));
  EXPECT_EQ(restored.find_content(), nullptr);
  restored.adopt(nullptr);
  restored.adopt(std::make_shared<const std::string>("other"));
  EXPECT_EQ(restored.content, nullptr);
  restored.adopt(trained.content);
  EXPECT_EQ(restored.find_content(), trained.content);
  EXPECT_THAT(restored.open()->encode("a"), ElementsAre(5));
  EXPECT_EQ(restored.why_content(), file.string() + " has changed");
  std::filesystem::remove(file);
  EXPECT_THAT(restored.open()->encode("a"), ElementsAre(5));
  EXPECT_EQ(restored.why_content(), file.string() + " is missing");
  TextSchema bytes = TextSchema::for_tokenizer("bytes");
  bytes.adopt(trained.content);
  EXPECT_EQ(bytes.find_content(), nullptr);
}

TEST(TextSchema, RestoresTheTokenizer) {
  const TemporaryDirectory directory;
  const auto file = directory / "tokenizer.json";
  write_bytes(file, word_piece_file().dump());
  for (TextSchema schema :
       {TextSchema::for_tokenizer("chars", "abc"), TextSchema::for_tokenizer("bytes"),
        TextSchema::for_tokenizer(file.string())}) {
    schema.length = 8;
    const TextSchema restored = TextSchema::from_checkpoint(schema.to_json(), "state.json");
    EXPECT_EQ(restored, schema);
    EXPECT_EQ(restored.open()->encode("a"), schema.open()->encode("a"));
    EXPECT_EQ(schema.hash.size(), 16U);
  }
  EXPECT_FALSE(TextSchema::for_tokenizer("chars", "abc")
                   .agrees_with(TextSchema::for_tokenizer("chars", "abd")));
  TextSchema trained = TextSchema::for_tokenizer(file.string());
  trained.content.reset();
  write_bytes(file, word_piece_file().dump(1));
  EXPECT_THAT(data_error_of([&] { trained.open(); }),
              HasSubstr("expected the tokenizer of the training, with the hash " + trained.hash));
  for (const char* key : {"tokenizer", "vocabulary", "hash", "length", "segments"}) {
    json damaged = TextSchema::for_tokenizer("chars", "abc").to_json();
    damaged["length"] = 8;
    damaged[key] = json::array();
    EXPECT_THAT(error_of(ErrorCategory::checkpoint,
                         [&] { TextSchema::from_checkpoint(damaged, "state.json"); }),
                HasSubstr("[state.json] expected the description of a tokenizer"));
  }
  for (const std::int64_t length :
       {std::int64_t{0}, TextSchema::kMaxLength + 1, std::numeric_limits<std::int64_t>::max()}) {
    json damaged = TextSchema::for_tokenizer("bytes").to_json();
    damaged["length"] = length;
    EXPECT_THAT(error_of(ErrorCategory::checkpoint,
                         [&] { TextSchema::from_checkpoint(damaged, "state.json"); }),
                HasSubstr(std::to_string(length)));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::data
