// Missing labels and words of tables, and counts for their description.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/data/source/csv/csv_source.h"
#include "tests/data/source/csv_fixture.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CsvLabelsTest : public CsvFixture {};

TEST_F(CsvLabelsTest, MissingEverywhereAreOneProblem) {
  write_bytes(path_, "x,y\n1,\n2,\n");
  std::vector<std::string> problems;
  CsvSource::find_problems(path_, {},
                           [&](const Error& error) { problems.emplace_back(error.what()); });
  EXPECT_THAT(problems, ::testing::ElementsAre(HasSubstr("missing: y in 2 rows")));
}

TEST_F(CsvLabelsTest, MissingOnesAreAnErrorInEverySpelling) {
  for (const std::string missing : {"", "NA", "NULL", "None", "N/A", "nan", "?", "\"NA\""}) {
    const std::string rows = "1,up\n2,down\n3," + missing + "\n4,up\n5," + missing + "\n";
    const std::string word = missing == "\"NA\"" ? "NA" : missing;
    EXPECT_EQ(error("a,kind\n" + rows),
              "[" + path_.string() +
                  ": line 4, column 2] expected a class (remove these rows, or fill them in" +
                  (word.empty() ? "" : "; label-words=" + word + " if it is the name of a class") +
                  "), got \"" + word + "\"; missing: kind in 2 rows (first in line 4)");
    EXPECT_THAT(error("a,kind\n" + rows, {.categorical = {"kind"}}),
                HasSubstr("missing: kind in 2 rows (first in line 4)"));
    EXPECT_THAT(error("a,kind\n3," + missing + "\n1,up\n2,down\n"),
                HasSubstr("line 2, column 2] expected a class ("));
    const auto schema = open("a,kind\n1,up\n2,down\n").info().table;
    EXPECT_THAT(error("a,kind\n" + rows, {.schema = schema}),
                HasSubstr("missing: kind in 2 rows (first in line 4)"));
    EXPECT_EQ(open("a,kind\n" + rows, {.schema = schema, .may_lack_labels = true}).size(), 5);
    EXPECT_THAT(error("a,y\n1,2\n3," + missing + "\n", {.targets = {"y"}}),
                HasSubstr("missing: y in 1 row (first in line 3)"));
    const auto regression = open("a,y\n1,2\n", {.targets = {"y"}}).info().table;
    EXPECT_EQ(open("a,y\n1,2\n3," + missing + "\n", {.schema = regression, .may_lack_labels = true})
                  .size(),
              2);
  }
}

TEST_F(CsvLabelsTest, LabelWordsAreClasses) {
  const std::string text = "country,side\n1,NA\n2,DE\n3,None\n4,NA\n";
  const CsvSource source = open(text, {.label_words = {"NA", "None"}});
  EXPECT_THAT(source.info().class_names, ElementsAre("DE", "NA", "None"));
  EXPECT_EQ(read(source, 3).label(), 1);
  EXPECT_THAT(error(text, {.label_words = {"NA"}}), HasSubstr("got \"None\"; missing: side in 1"));
  const CsvSource test = open("country,side\n1,NA\n", {.schema = source.info().table});
  EXPECT_EQ(read(test, 0).label(), 1) << "known from the training";
  EXPECT_THAT(error("country,side\n1,NULL\n", {.schema = source.info().table}),
              HasSubstr("expected a class ("));
  const CsvSource numbers = open("a,k\n1,0\n2,NA\n", {.label_words = {"NA"}});
  EXPECT_THAT(numbers.info().class_names, ElementsAre("0", "NA"));
  EXPECT_THAT(table_options("label-words=NA+None", "").label_words, ElementsAre("NA", "None"));
}

TEST_F(CsvLabelsTest, InfIsAWordAmongWords) {
  EXPECT_THAT(open("a,side\n0,sup\n1,inf\n2,med\n").info().class_names,
              ElementsAre("inf", "med", "sup"));
  EXPECT_THAT(open("a,side\n0,inf\n1,sup\n").info().class_names, ElementsAre("inf", "sup"));
  EXPECT_THAT(error("a,side,k\n0,inf,0\n1,sup,1\n2,med,1\n"),
              HasSubstr("expected a number, or a column of words: categorical=side, got \"inf\""));
}

TEST_F(CsvLabelsTest, EverySpellingOfAMissingWordIsOneValue) {
  const CsvSource source = open("c,k\nred,0\n,1\nNA,0\nnone,1\n?,0\n", {.categorical = {"c"}});
  EXPECT_THAT(source.info().feature_names, ElementsAre("c=NA", "c=red"));
  EXPECT_THAT(read(source, 3).features(), ElementsAre(1, 0));
  EXPECT_THAT(source.info().table->counts.missing, ElementsAre(4));
  const CsvSource test = open("c,k\nNULL,0\n", {.schema = source.info().table});
  EXPECT_THAT(read(test, 0).features(), ElementsAre(1, 0));
  EXPECT_THAT(error("s,x,k\n,1,0\n", {.window = 1, .series = "s"}),
              HasSubstr("expected the name of a series, got \"\""));
  EXPECT_THAT(error("s,x,k\nNA,1,0\n", {.window = 1, .series = "s"}),
              HasSubstr("expected the name of a series, got \"NA\""));
}

TEST_F(CsvLabelsTest, AreCountedInTheSummary) {
  CsvOptions options{.leave_out = {"id"}, .categorical = {"city"}};
  options.missing = MissingValues{MissingValues::Rule::mean};
  options.unknown_column = true;
  const CsvSource source =
      open("id,age,city,bought\n1,20,Ulm,no\n2,NA,Bonn,yes\n3,30,\"Ulm\",no\n", options);
  const TableSchema& schema = *source.info().table;
  EXPECT_THAT(
      schema.summary(),
      ElementsAre("3 rows below a header", "numbers: age (1 missing: mean 25)",
                  "words: city (2 values)", "label bought: no (2), yes (1)", "left out: id"));
  EXPECT_EQ(schema.summary_json(), nlohmann::json::parse(R"({"header": true, "rows": 3,
      "features": 2, "left_out": ["id"], "label": "bought",
      "columns": [{"name": "age", "kind": "numeric", "missing": 1},
                  {"name": "city", "kind": "categorical", "missing": 0, "values": 2, "unknown": 0}],
      "classes": [{"name": "no", "rows": 2}, {"name": "yes", "rows": 1}]})"));
  EXPECT_THAT(schema.warnings(), ElementsAre());
  const CsvSource test = open("age,city,bought,more\n1,ulm,no,0\n2,bonn,no,0\n3,Ulm,no,0\n",
                              {.schema = source.info().table});
  EXPECT_THAT(test.info().table->summary(&schema),
              ElementsAre("3 rows below a header", "words: city (2 of 3 rows unknown)",
                          "label bought: no (3), yes (0)", "left out: more"));
  EXPECT_THAT(test.info().table->warnings(&schema),
              ElementsAre("city: 2 of 3 rows have values that the training table does not have "
                          "(there 0 of 3)"));
  const CsvSource regression = open("1,2,3\n4,5,6\n", {.targets = {"2"}});
  EXPECT_THAT(regression.info().table->summary(),
              ElementsAre("2 rows without a header", "numbers: 1, 3", "targets: 2"));
  EXPECT_THAT(open("5,2\n6,0\n").info().table->summary(),
              ElementsAre("2 rows without a header", "numbers: 1", "label 2: 0 (1), 1 (0), 2 (1)"));
}

TEST_F(CsvLabelsTest, WarnIfAColumnOnlyNumbersTheRows) {
  std::string text = ",name,age,income,k\n";
  for (int i = 0; i < 21; ++i)
    text += std::to_string(i) + ",person" + std::to_string(i) + "," + std::to_string(20 + i % 7) +
            "," + std::to_string(1000 + i) + ".5," + (i % 2 == 0 ? "a\n" : "b\n");
  const auto warnings = open(text, {.categorical = {"name"}}).info().table->warnings();
  EXPECT_THAT(warnings,
              ElementsAre("column 1 has no name, like the index of the rows that pandas writes, "
                          "and is a feature: drop=1 leaves it out",
                          "all 21 values of name are different: a column that only numbers or "
                          "names the rows teaches a network nothing, and drop=name leaves it out"));
  EXPECT_THAT(open(text, {.leave_out = {"1", "name"}}).info().table->warnings(), ElementsAre());
  EXPECT_THAT(open("id" + text, {.leave_out = {"name"}}).info().table->warnings(),
              ElementsAre(HasSubstr("all 21 values of id are different")));
  const CsvSource numbered =
      open(",0,1\n0,2.5,1\n1,3.5,0\n", {.header = CsvHeader::yes, .leave_out = {"Unnamed: 0"}});
  EXPECT_THAT(numbered.info().feature_names, ElementsAre("0"))
      << "1 is the name of the third column";
  EXPECT_THAT(open("Unnamed: 0,a\n1,0\n2,1\n").info().table->warnings(),
              ElementsAre(HasSubstr("column Unnamed: 0 has no name")));
}

}  // namespace
}  // namespace lockstep::inline v0::data
