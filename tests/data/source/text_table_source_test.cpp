#include "lockstep/data/source/text_table_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/data/open_data.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Integers = std::vector<std::int32_t>;

class TextTableTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    write_bytes(directory_ / name, text);
    return (directory_ / name).string();
  }
  /// [PAD] and the words from 5 on; [CLS] is 2, [SEP] 3.
  std::string vocabulary() const {
    return write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n##s\nrank\nwait\nand\n");
  }
  TextTableSource source(const std::string& table, const TextOptions& options) const {
    return TextTableSource({write("a.csv", table)}, options);
  }
  TextOptions words(std::int64_t length) const {
    return {.tokenizer = vocabulary(), .length = length, .column = "text", .label = "kind"};
  }
  static Integers input(const RecordSource& source, std::int64_t record, std::string_view name) {
    return copy(read(source, record).memory.input(name).as<std::int32_t>());
  }

  static Integers next(const RecordSource& source, std::int64_t record) {
    return copy(read(source, record).memory.target("next").as<std::int32_t>());
  }

  const TemporaryDirectory directory_;
};

TEST_F(TextTableTest, MakesASampleOfEachRow) {
  const TextTableSource texts = source(
      "id,text,kind\n"
      "1,Ranks wait,verb\n"
      "2,\"rank, and \"\"rank\"\"\",noun\n"
      "3,,noun\n",
      words(8));
  EXPECT_EQ(to_string(texts.spec()),
            "tokens [8] (8 classes) and segments int32 [8] with 2 classes");
  ASSERT_EQ(texts.size(), 3);
  EXPECT_THAT(texts.info().class_names, ElementsAre("noun", "verb"));
  EXPECT_EQ(input(texts, 0, "tokens"), (Integers{2, 5, 4, 6, 3, 0, 0, 0}));
  EXPECT_EQ(input(texts, 0, "segments"), (Integers{1, 1, 1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(input(texts, 1, "tokens"), (Integers{2, 5, 1, 7, 1, 5, 1, 3}));
  EXPECT_EQ(input(texts, 2, "tokens"), (Integers{2, 3, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(read(texts, 0).label(), 1);
  EXPECT_EQ(read(texts, 1).label(), 0);
  EXPECT_THAT(texts.info().description,
              MatchesRegex("3 texts of .*a.csv, 1 missing \\(empty, NA, \\?\\), read as written, "
                           "tokenizer vocab.txt \\(8 tokens, [0-9a-f]+\\), 8 positions"));
}

TEST_F(TextTableTest, CutsLongTextsBetweenTheirFirstAndLastToken) {
  const TextTableSource texts =
      source("text;kind\nrank rank rank wait;0\nrank;10\nwait wait wait;9\n", words(4));
  EXPECT_EQ(input(texts, 0, "tokens"), (Integers{2, 5, 5, 3}));
  EXPECT_EQ(input(texts, 1, "tokens"), (Integers{2, 5, 3, 0}));
  EXPECT_THAT(texts.info().preparation, testing::EndsWith(", 4 positions, 2 longer texts cut"));
  EXPECT_THAT(texts.info().class_names, ElementsAre("0", "9", "10")) << "numbers by value";
  EXPECT_EQ(read(texts, 1).label(), 2);
}

TEST_F(TextTableTest, AcceptsTokenizersWithoutSpecialTokens) {
  const TextTableSource texts =
      source("text\tother\nba\t1\nac\t2\n", {.length = 3, .column = "text"});
  EXPECT_EQ(to_string(texts.spec()),
            "tokens [3] (3 classes) and segments int32 [3] without labels");
  EXPECT_EQ(input(texts, 0, "tokens"), (Integers{1, 0, 0}));
  EXPECT_EQ(input(texts, 0, "segments"), (Integers{1, 1, 0}));
  EXPECT_EQ(input(texts, 1, "tokens"), (Integers{0, 2, 0}));
  EXPECT_THAT(texts.info().class_names, ElementsAre());
}

TEST_F(TextTableTest, ReadsOtherTablesAsThatOfTheTraining) {
  const TextTableSource training = source("text,kind\nrank,b\nwait,a\n", words(6));
  const auto schema = training.info().text;
  EXPECT_EQ(TextSchema::from_checkpoint(schema->to_json(), "state.json"), *schema);
  const std::string other = "text:" + write("b.csv", "kind,text\nb,wait wait\n");
  const Dataset evaluated = open_data(other, {.text = schema}).with_classes({"a", "b"});
  EXPECT_EQ(evaluated.spec(), training.spec());
  EXPECT_EQ(read(evaluated.source(), 0).label(), 1);
  EXPECT_EQ(input(evaluated.source(), 0, "tokens"), (Integers{2, 6, 6, 3, 0, 0}));
  const Dataset predicted = open_data("text:" + write("c.csv", "text\nwait\n"),
                                      {.text = schema, .may_lack_labels = true});
  EXPECT_EQ(predicted.spec().inputs, training.spec().inputs);
  EXPECT_TRUE(predicted.spec().targets.empty());
  EXPECT_THAT(
      input_error_of([&] { open_data(other + ":tokenizer=chars", {.text = schema}); }),
      HasSubstr("expected the tokenizer of the training, vocab.txt with the hash " + schema->hash));
}

TEST_F(TextTableTest, MakesPairsOfASourceAndATarget) {
  const TextTableSource pairs =
      source("id,from,to\n1,ab,cab\n2,b,a\n", {.length = 3, .source = "from", .target = "to"});
  EXPECT_EQ(to_string(pairs.spec()),
            "source [3] (3 classes) and source_segments int32 [3] and tokens [3] (5 classes) with "
            "next [3] (5 classes)");
  ASSERT_EQ(pairs.size(), 2);
  EXPECT_EQ(input(pairs, 0, "source"), (Integers{0, 1, 0}));
  EXPECT_EQ(input(pairs, 0, "source_segments"), (Integers{1, 1, 0}));
  EXPECT_EQ(input(pairs, 0, "tokens"), (Integers{3, 2, 0})) << "3 begins, 4 ends a text";
  EXPECT_EQ(next(pairs, 0), (Integers{2, 0, 1})) << "a text that is cut has no end";
  EXPECT_EQ(input(pairs, 1, "tokens"), (Integers{3, 0, 0}));
  EXPECT_EQ(next(pairs, 1), (Integers{0, 4, -1}));
  EXPECT_THAT(pairs.info().description,
              MatchesRegex("2 pairs of .*a.csv, tokenizer chars \\(3 tokens, [0-9a-f]+\\), 3 "
                           "positions and 3 of targets, 1 longer text cut"));
}

TEST_F(TextTableTest, ReadsOtherPairsAsThoseOfTheTraining) {
  const std::string table = "text:" + write("a.csv", "from,to\nrank wait,wait\n");
  const Dataset training = open_data(
      table + ":source=from,target=to,length=8,target-length=5,tokenizer=" + vocabulary());
  EXPECT_EQ(input(training.source(), 0, "source"), (Integers{2, 5, 6, 3, 0, 0, 0, 0}));
  EXPECT_EQ(input(training.source(), 0, "tokens"), (Integers{2, 6, 0, 0, 0}));
  EXPECT_EQ(next(training.source(), 0), (Integers{6, 3, -1, -1, -1}));
  const auto schema = training.source().info().text;
  EXPECT_EQ(TextSchema::from_checkpoint(schema->to_json(), "state.json"), *schema);
  const Dataset other = open_data("text:" + write("b.csv", "to,from\nrank,and\n"),
                                  {.text = schema, .may_lack_labels = true});
  EXPECT_EQ(other.spec(), training.spec());
  EXPECT_EQ(input(other.source(), 0, "source"), (Integers{2, 7, 3, 0, 0, 0, 0, 0}));
  EXPECT_EQ(next(other.source(), 0), (Integers{5, 3, -1, -1, -1}));

  nlohmann::json json = schema->to_json();
  for (const auto& [key, value] : {std::pair<const char*, nlohmann::json>{"target_length", 0},
                                   {"target_length", std::int64_t{1} << 40},
                                   {"target", ""},
                                   {"source", 3}}) {
    nlohmann::json damaged = json;
    damaged[key] = value;
    EXPECT_THROW(TextSchema::from_checkpoint(damaged, "state.json"), Error) << key;
  }
  json.erase("target");
  EXPECT_THROW(TextSchema::from_checkpoint(json, "state.json"), Error);
}

TEST_F(TextTableTest, RefusesPairsThatAreIncomplete) {
  const auto reason = [&](const std::string& table) {
    return data_error_of([&] { source(table, {.source = "from", .target = "to"}); });
  };
  EXPECT_THAT(reason("from,to\na,\n"), HasSubstr("a.csv: line 2, column 2] expected a text of at "
                                                 "least one token; the text is empty"));
  EXPECT_THAT(reason("to,from\na,b\na,\n"), HasSubstr("a.csv: line 3, column 2] expected a text"));
  EXPECT_THAT(reason("from,to\n"), HasSubstr("expected at least one row"));
  const std::string table = "text:" + write("b.csv", "from,to,again,again\nrank,a,b,c\n");
  for (const auto& [options, expected] :
       {std::pair{":source=from",
                  "expected source= and target=, the columns of both texts; there is no target="},
        {":target=to", "there is no source="},
        {":source=from,target=to,label=to",
         "expected neither column= nor label= with source= and target=, got label="},
        {":source=from,target=to,column=to", "got column="},
        {":source=from,target=to,stride=3",
         "expected neither stride= nor documents= with source=, got stride="},
        {":source=from,target=two", "expected a column \"two\""},
        {":source=again,target=to", "expected one column \"again\", got several"},
        {":column=from,target-length=3",
         "expected source= and target= with target-length=; there is neither"}})
    EXPECT_THAT(input_error_of([&] { open_data(table + options); }), HasSubstr(expected));
  const auto column = open_data(table + ":column=from").source().info().text;
  EXPECT_THAT(
      input_error_of([&] { open_data(table + ":source=from,target=to", {.text = column}); }),
      HasSubstr("expected a column of texts, as in the training, got source= or target="));
  const auto schema = open_data(table + ":source=from,target=to").source().info().text;
  EXPECT_THAT(data_error_of([&] {
                open_data("text:" + write("c.csv", "from,to\nrank,x\n"), {.text = schema});
              }),
              HasSubstr("c.csv: line 2, column 2] expected characters of the training text"));
}

TEST_F(TextTableTest, LabelWordsAreClassesAndMissingTextsAreCounted) {
  const std::string table = "text:" + write("a.csv", "text,kind\nrank,NA\n?,a\n,None\n");
  const std::string options =
      ":column=text,label=kind,label-words=NA+None,tokenizer=bytes,length=4";
  const Dataset dataset = open_data(table + options);
  EXPECT_THAT(dataset.source().info().class_names, ElementsAre("NA", "None", "a"));
  EXPECT_THAT(dataset.description(), HasSubstr(", 2 missing (empty, NA, ?), read as written"));
  const auto schema = dataset.source().info().text;
  EXPECT_EQ(TextSchema::from_checkpoint(schema->to_json(), "state.json"), *schema);
  EXPECT_EQ(open_data(table, {.text = schema}).source().info().class_names.size(), 3)
      << "known from the training";
  EXPECT_EQ(open_data("text:" + write("b.csv", "text,kind\nrank,NULL\n"),
                      {.text = schema, .may_lack_labels = true})
                .size(),
            1);
}

TEST_F(TextTableTest, NamesFileLineAndColumn) {
  struct Case {
    std::string table;
    std::string reason;
  };
  for (const Case& one :
       {Case{"text,kind\nrank,\n",
             ": line 2, column 2] expected a class (remove these rows, or fill them in), got \"\"; "
             "missing: kind in 1 row"},
        Case{"text,kind\nrank,a\nrank,NA\nrank,b\nrank,\"nan\"\n",
             ": line 3, column 2] expected a class (remove these rows, or fill them in; "
             "label-words=NA if it is the name of a class), got \"NA\"; missing: kind in 2 rows"},
        Case{"text,kind\nrank\n",
             ": line 2, column 1] expected 2 columns, as in the first row; there are 1"},
        Case{"text,kind\n\xff,a\n",
             ": line 2] expected a table in UTF-8 (csv:FILE:encoding=latin1 reads one in "
             "Latin-1; iconv -f LATIN1 -t UTF-8 converts it), got the byte 0xff"},
        Case{"text,kind\n", "expected at least one row after the first line; there is none"}}) {
    const std::string error = data_error_of([&] { source(one.table, words(8)); });
    EXPECT_THAT(error, HasSubstr("a.csv"));
    EXPECT_THAT(error, HasSubstr(one.reason));
  }
  EXPECT_THAT(input_error_of([&] { source("texts,kind\nrank,a\n", words(8)); }),
              HasSubstr("a.csv] expected a column \"text\" in the first line, which names the "
                        "columns; the columns are texts, kind"));
  EXPECT_THAT(input_error_of([&] { source("text,kind\nrank,a\n", words(2)); }),
              HasSubstr("expected a length of at least 3, with the tokens before and after each "
                        "text, got 2"));
  EXPECT_THAT(input_error_of([&] {
                const TextSource text({write("a.csv", "text\nrank\n")}, {.column = "text"});
              }),
              HasSubstr("a.csv] expected a text, not a column of a table, got column="));
  EXPECT_THAT(input_error_of([&] { source("text,kind,text\nrank,a,wait\n", words(8)); }),
              HasSubstr("a.csv] expected one column \"text\", got several"));
  std::string many = "text,kind\n";
  for (int i = 0; i <= 10'000; ++i) many += "rank," + std::to_string(i) + "\n";
  EXPECT_THAT(data_error_of([&] { source(many, words(8)); }),
              HasSubstr("a.csv] expected at most 10000 classes in the column kind, got 10001"));
  const std::string table = "text:" + write("b.csv", "text,kind\nrank,a\n");
  for (const auto& [options, reason] :
       {std::pair{":label=kind",
                  "expected column=, the column of the texts, with label=; there is "
                  "none"},
        {":column=text,stride=2",
         "expected neither stride= nor documents= with column=, got stride="},
        {":column=text,documents=lines", "with column=, got documents="}})
    EXPECT_THAT(input_error_of([&] { open_data(table + options); }), HasSubstr(reason));
}

}  // namespace
}  // namespace lockstep::inline v0::data
