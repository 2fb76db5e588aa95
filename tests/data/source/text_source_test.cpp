#include "lockstep/data/source/text_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/open_data.h"
#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Numbers = std::vector<std::int32_t>;

Numbers input(const ReadSample& sample, std::string_view name) {
  return copy(sample.memory.input(name).as<std::int32_t>());
}
Numbers next(const ReadSample& sample) {
  return copy(sample.memory.target("next").as<std::int32_t>());
}

class TextSourceTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    write_bytes(directory_ / name, text);
    return (directory_ / name).string();
  }
  /// A source of `text` in one file.
  TextSource source(const std::string& text, const TextOptions& options = {}) const {
    return TextSource({write("a.txt", text)}, options);
  }

  const TemporaryDirectory directory_;
};

TEST_F(TextSourceTest, CutsFilesIntoWindows) {
  const TextSource whole = source("abcdefg", {.length = 3});
  EXPECT_EQ(whole.spec().inputs,
            (std::vector<TensorSpec>{
                {.name = "tokens", .type = ElementType::int32, .shape = {3}, .classes = 7}}));
  EXPECT_EQ(to_string(whole.spec()), "tokens [3] (7 classes) with next [3] (7 classes)");
  ASSERT_EQ(whole.size(), 2) << "the last token is only a target";
  EXPECT_EQ(input(read(whole, 0), "tokens"), (Numbers{0, 1, 2}));
  EXPECT_EQ(next(read(whole, 0)), (Numbers{1, 2, 3}));
  EXPECT_EQ(input(read(whole, 1), "tokens"), (Numbers{3, 4, 5}));
  EXPECT_EQ(next(read(whole, 1)), (Numbers{4, 5, 6}));
}

TEST_F(TextSourceTest, EveryTokenIsATarget) {
  struct Case {
    std::string text;
    std::int64_t stride;
    std::vector<Numbers> tokens;
    std::vector<Numbers> next;
  };
  for (const Case& one : {Case{"abcde", 3, {{0, 1, 2}, {3, 0, 0}}, {{1, 2, 3}, {4, -1, -1}}},
                          Case{"ab", 3, {{0, 0, 0}}, {{1, -1, -1}}},
                          Case{"abcde", 2, {{0, 1, 2}, {2, 3, 0}}, {{1, 2, 3}, {3, 4, -1}}},
                          Case{"abcd", 1, {{0, 1, 2}}, {{1, 2, 3}}}}) {
    const TextSource windows = source(one.text, {.length = 3, .stride = one.stride});
    ASSERT_EQ(windows.size(), std::ssize(one.tokens)) << one.text;
    for (std::int64_t i = 0; i < windows.size(); ++i) {
      EXPECT_EQ(input(read(windows, i), "tokens"), one.tokens[static_cast<std::size_t>(i)]);
      EXPECT_EQ(next(read(windows, i)), one.next[static_cast<std::size_t>(i)]);
    }
  }
}

TEST_F(TextSourceTest, PacksLines) {
  const TextSource lines =
      source("ab\r\n\nc\ndefg\nab", {.length = 3, .documents = TextDocuments::lines});
  EXPECT_EQ(to_string(lines.spec()),
            "tokens [3] (7 classes) and segments int32 [3] with next [3] (7 classes)");
  struct Sample {
    Numbers tokens;
    Numbers segments;
    Numbers next;
  };
  const std::vector<Sample> expected = {{{0, 1, 2}, {1, 1, 2}, {1, -1, -1}},
                                        {{3, 4, 5}, {1, 1, 1}, {4, 5, 6}},
                                        {{6, 0, 1}, {1, 2, 2}, {-1, 1, -1}}};
  ASSERT_EQ(lines.size(), 3);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const ReadSample sample = read(lines, static_cast<std::int64_t>(i));
    EXPECT_EQ(input(sample, "tokens"), expected[i].tokens) << i;
    EXPECT_EQ(input(sample, "segments"), expected[i].segments) << i;
    EXPECT_EQ(next(sample), expected[i].next) << i;
  }
  const TextSource padded = source("ab\ncd", {.length = 3, .documents = TextDocuments::lines});
  EXPECT_EQ(input(read(padded, 0), "segments"), (Numbers{1, 1, 0}));
  EXPECT_EQ(next(read(padded, 0)), (Numbers{1, -1, -1}));
  EXPECT_EQ(padded.size(), 2) << "a line that fits in a sample is not divided";
}

TEST_F(TextSourceTest, EndsDocumentsWithTheTokenOfTheFile) {
  const std::string vocabulary = write("vocab.txt", "[UNK]\n[SEP]\na\nb\n");
  const std::vector<std::filesystem::path> files = {write("1.txt", "a b"), write("2.txt", "b\na")};
  const TextSource stream(files, {.tokenizer = vocabulary, .length = 5});
  EXPECT_EQ(input(read(stream, 0), "tokens"), (Numbers{2, 3, 1, 3, 2}));
  EXPECT_EQ(next(read(stream, 0)), (Numbers{3, 1, 3, 2, 1}));
  const TextSource lines(files,
                         {.tokenizer = vocabulary, .length = 5, .documents = TextDocuments::lines});
  EXPECT_EQ(input(read(lines, 0), "tokens"), (Numbers{2, 3, 3, 2, 0}));
  EXPECT_EQ(input(read(lines, 0), "segments"), (Numbers{1, 1, 2, 3, 0}));
  EXPECT_EQ(next(read(lines, 0)), (Numbers{3, 1, 1, 1, -1}));
}

TEST_F(TextSourceTest, ReadsTokensOfLargeVocabularies) {
  std::string lines = "[UNK]\n";
  for (int i = 1; i < 70'000; ++i) lines += "t" + std::to_string(i) + "\n";
  const TextSource large =
      source("t69999 t3 t65536", {.tokenizer = write("vocab.txt", lines), .length = 2});
  EXPECT_EQ(input(read(large, 0), "tokens"), (Numbers{69'999, 3}));
  EXPECT_EQ(next(read(large, 0)), (Numbers{3, 65'536}));
}

TEST_F(TextSourceTest, ReadsOtherTextsAsTheTrainingText) {
  const TextSource training = source("abcd", {.length = 2, .documents = TextDocuments::lines});
  const auto schema = training.info().text;
  ASSERT_NE(schema, nullptr);
  const TextSource validation = source("db", {.schema = schema});
  EXPECT_EQ(validation.spec(), training.spec());
  EXPECT_EQ(input(read(validation, 0), "tokens"), (Numbers{3, 1}));
  EXPECT_THAT(data_error_of([&] { source("a\nbe", {.schema = schema}); }),
              HasSubstr("a.txt: line 2] expected characters of the training text (tokenizer=bytes "
                        "reads any text), got U+0065 at offset 1"));
  EXPECT_THAT(input_error_of([&] { source("ab", {.tokenizer = "bytes", .schema = schema}); }),
              HasSubstr("expected the tokenizer of the training, chars with the hash " +
                        schema->hash + ", got bytes with the hash "));
}

TEST_F(TextSourceTest, IsIdenticalInShards) {
  for (const auto documents : {TextDocuments::files, TextDocuments::lines}) {
    const TextSource text = source("ab\ncde\nfghi", {.length = 4, .documents = documents});
    const PartDescription part =
        write_shards(text, {.directory = directory_ / "shards", .shards = 2, .overwrite = true});
    ASSERT_TRUE(part.text.has_value());
    EXPECT_EQ(read_dataset_json(directory_ / "shards")->at("train"), part);
    const Dataset shards = open_data((directory_ / "shards").string());
    EXPECT_EQ(shards.spec(), text.spec());
    EXPECT_EQ(*shards.source().info().text, *text.info().text);
    PartDescription other = part;
    EXPECT_TRUE(other.fits(part));
    other.text->tokenizer = "/a copy of it";
    EXPECT_TRUE(other.fits(part));
    other.text->hash = "another one";
    EXPECT_FALSE(other.fits(part));
    other.text.reset();
    EXPECT_FALSE(other.fits(part));
    ASSERT_EQ(shards.size(), text.size());
    for (std::int64_t i = 0; i < text.size(); ++i) {
      EXPECT_EQ(read(shards.source(), i).memory.inputs, read(text, i).memory.inputs);
      EXPECT_EQ(read(shards.source(), i).memory.targets, read(text, i).memory.targets);
    }
  }
  write_bytes(
      directory_ / "shards" / "dataset.json",
      R"({"lockstep_dataset": 1, "parts": {"train": {"records": 1, "files": [], "inputs": [)"
      R"({"name": "tokens", "type": "int32", "shape": [4]}], "targets": [], "text": 1}}})");
  EXPECT_THAT(data_error_of([&] { read_dataset_json(directory_ / "shards"); }),
              HasSubstr("dataset.json] expected the description of a tokenizer; it is 1"));
}

TEST_F(TextSourceTest, SkipsAByteOrderMark) {
  const TextSource plain = source("abcd", {.length = 2});
  const TextSource marked = source(
      "\xef\xbb\xbf"
      "abcd",
      {.length = 2});
  EXPECT_EQ(marked.spec(), plain.spec());
  EXPECT_EQ(input(read(marked, 0), "tokens"), input(read(plain, 0), "tokens"));
}

TEST_F(TextSourceTest, NamesFilesThatAreNotText) {
  EXPECT_EQ(data_error_of([&] { source(""); }), "[" + (directory_ / "a.txt").string() +
                                                    "] expected at least one character of text; "
                                                    "there is none");
  EXPECT_THAT(data_error_of([&] { source("version https://git-lfs.github.com/spec/v1\n"); }),
              HasSubstr("a.txt] expected text in UTF-8, got a Git LFS pointer"));
  EXPECT_THAT(data_error_of([&] { source("\x1f\x8b\x08\x01"); }),
              HasSubstr("a.txt] expected text in UTF-8, got a gzip file: decompress it"));
  EXPECT_EQ(source("<html> is read", {.length = 2}).size(), 7) << "like any other text";
}

TEST_F(TextSourceTest, PrefersAnExistingFileToOptions) {
  const std::string name = write("a:length=4", "abcdefgh");
  EXPECT_EQ(TextSpec::parse(name, "text").files, name);
  const std::string other = (directory_ / "b:length=4").string();
  EXPECT_EQ(TextSpec::parse(other, "text").files, (directory_ / "b").string());
}

TEST_F(TextSourceTest, NamesFileAndOffset) {
  EXPECT_EQ(data_error_of([&] { source("ab\xff"); }),
            "[" + (directory_ / "a.txt").string() +
                "] expected text in UTF-8, got the byte 0xff at offset 2");
  EXPECT_EQ(source("ab\xff", {.tokenizer = "bytes"}).spec().classes(), 256);
  EXPECT_THAT(data_error_of([&] { source("a"); }),
              HasSubstr("a.txt] expected at least 2 tokens of text; there is one in 1 file"));
  EXPECT_THAT(data_error_of([&] { source("\n\n", {.documents = TextDocuments::lines}); }),
              HasSubstr("expected at least one character"));
  EXPECT_THAT(data_error_of([&] { source("ab", {.tokenizer = "nowhere.json"}); }),
              HasSubstr("[nowhere.json] expected a file that can be read"));
  EXPECT_THAT(input_error_of([&] { source("ab", {.length = 3, .stride = 4}); }),
              HasSubstr("expected a stride up to the length, 3, got 4"));
  EXPECT_THAT(input_error_of([&] { source("ab", {.length = TextSchema::kMaxLength + 1}); }),
              HasSubstr("expected a length up to 1048576, got 1048577"));
}

TEST_F(TextSourceTest, IsOpenedByItsName) {
  write("1.txt", "abc");
  write("2.txt", "cba");
  const std::string files = "text:" + (directory_ / "*.txt").string();
  const Dataset text = open_data(files + ":length=4,stride=2,tokenizer=bytes");
  EXPECT_EQ(text.size(), 2);
  EXPECT_THAT(text.description(),
              testing::MatchesRegex("6 tokens of 2 text files, tokenizer bytes \\(256 tokens, "
                                    "[0-9a-f]+\\), windows of 4 every 2"));
  EXPECT_EQ(open_data(files).spec().shape(), (std::vector<std::int64_t>{128}));
  EXPECT_EQ(data_files(files + ":length=4").size(), 2U);
  for (const auto& [options, reason] :
       {std::pair{"lenght=4",
                  "expected tokenizer=, length=, stride=, documents=, column=, label=, "
                  "label-words=, image=, source=, target= or target-length= as settings of "},
        {"lenght=4", "got \"lenght\" (did you mean length?)"},
        {"target-length=0", "expected target-length to be a whole number from 1 to 1048576"},
        {"target-length=4", "expected source= and target= with target-length=; there is neither"},
        {"length=0", "expected length to be a whole number from 1 to 1048576, got \"length=0\""},
        {"stride=x", "expected stride to be a whole number from 1 to 1048576, got \"stride=x\""},
        {"tokenizer=", "expected tokenizer=VALUE; tokenizer='' is the empty one"},
        {"documents=words", "expected files or lines, got \"words\""},
        {"documents=lines,stride=2", "expected no stride with documents=lines"}})
    EXPECT_THAT(input_error_of([&] { open_data(files + ":" + options); }), HasSubstr(reason));
}

}  // namespace
}  // namespace lockstep::inline v0::data
