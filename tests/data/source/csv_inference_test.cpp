// What the columns of a table are taken for, without options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/data/source/csv_fixture.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CsvInference : public CsvFixture {
 protected:
  CsvSource read_table(const std::string& text, const std::string& options = "") const {
    write_bytes(path_, text);
    return CsvSource(path_, options.empty() ? CsvOptions() : table_options(options, "test"));
  }
  TableSchema schema(const std::string& text, const std::string& options = "") const {
    return *read_table(text, options).info().table;
  }
  /// A table of `rows` rows whose columns are functions of the row, and a label `k`.
  static std::string columns(
      int rows, const std::vector<std::pair<std::string, std::function<std::string(int)>>>& all) {
    std::string text;
    for (const auto& [name, value] : all) text += name + ",";
    text += "k\n";
    for (int row = 0; row < rows; ++row) {
      for (const auto& [name, value] : all) text += value(row) + ",";
      text += row % 2 == 0 ? "a\n" : "b\n";
    }
    return text;
  }
};

std::string number(int row) { return std::to_string(row % 7); }

TEST_F(CsvInference, FindsNumbersWordsFlagsAndDates) {
  const TableSchema all = schema(columns(
      24, {{"age", [](int row) { return row == 3 ? "NA" : std::to_string(20 + row % 5); }},
           {"color", [](int row) { return row % 3 == 0 ? "red" : "blue"; }},
           {"member", [](int row) { return row % 3 == 0 ? "True" : "False"; }},
           {"since", [](int row) { return "2026-11-" + std::to_string(10 + row % 9); }},
           {"until", [](int row) { return std::to_string(1 + row % 9) + ".2.2027 12:00"; }}}));
  EXPECT_THAT(all.summary(),
              ElementsAre("24 rows below a header", "numbers: age (1 missing: mean 21.87)",
                          "dates: since, until", "flags: member (2 values)",
                          "words: color (2 values)", "label k: a (12), b (12)"));
  EXPECT_EQ(all.features[3].offset, 20767 + 3.625) << "the mean of days since 1970";
  EXPECT_THAT(all.warnings(), IsEmpty());
}

TEST_F(CsvInference, LeavesOutIdentifiers) {
  const std::string text = columns(
      30, {{"", [](int row) { return std::to_string(row); }},
           {"PassengerId", [](int row) { return std::to_string(100000 + 977 * row); }},
           {"name", [](int row) { return "Mr. " + std::to_string(row); }},
           {"row", [](int row) { return std::to_string(1 + (row * 7) % 100); }},  // 1 to 100
           {"year", [](int row) { return std::to_string(1990 + row); }},
           {"income", [](int row) { return std::to_string(20000 + 317 * row); }},
           {"height", [](int row) { return std::to_string(row) + ".5"; }}});
  const TableSchema all = schema(text);
  EXPECT_THAT(all.counts.identifiers, ElementsAre("1", "PassengerId", "name", "row"));
  EXPECT_THAT(all.summary(), ::testing::Contains("numbers: year, income, height"));
  EXPECT_THAT(all.warnings(),
              ElementsAre("left out: 1, PassengerId, name, row, whose values are all different, so "
                          "that they only number or name the rows; "
                          "keep=1+PassengerId+name+row makes them features",
                          HasSubstr("all 30 values of year, income are different")));
  EXPECT_THAT(schema(text, "keep=row+name").counts.identifiers, ElementsAre("1", "PassengerId"));
  EXPECT_THAT(schema(text, "columns=PassengerId+height").counts.identifiers, IsEmpty());
  EXPECT_THAT(schema(text, "categorical=name").counts.identifiers,
              ElementsAre("1", "PassengerId", "row"));
}

TEST_F(CsvInference, KeepsColumnsOfFewRowsAndTheOnlyFeature) {
  const auto index = [](int row) { return std::to_string(row); };
  EXPECT_THAT(schema(columns(19, {{"n", index}, {"x", number}})).counts.identifiers, IsEmpty());
  EXPECT_THAT(schema(columns(19, {{"", index}, {"x", number}})).counts.identifiers,
              ElementsAre("1"))
      << "the index of pandas, of any length";
  const TableSchema alone = schema(columns(30, {{"n", index}}));
  EXPECT_THAT(alone.counts.identifiers, IsEmpty()) << "a function of one number";
  EXPECT_THAT(
      schema(columns(30, {{"x", number}, {"t", index}}), "targets=t,drop=k").features.size(), 1u)
      << "a target is no identifier";
}

TEST_F(CsvInference, ComparesAllRows) {
  const auto word = [](int row) { return std::to_string(row % 10500); };
  const TableSchema all = schema(columns(11000, {{"x", number}, {"word", word}}));
  EXPECT_THAT(all.counts.identifiers, IsEmpty()) << "the first 10,000 differ";
}

TEST_F(CsvInference, LeavesOutColumnsWithoutValues) {
  const TableSchema all = schema("x,none,k\n1,,a\n2,NA,b\n3,?,a\n");
  EXPECT_THAT(all.warnings(), ElementsAre("left out: none, without values"));
  EXPECT_EQ(all.features.size(), 1u);
}

TEST_F(CsvInference, TakesAColumnWithFewOtherFieldsForNumbers) {
  const auto with = [&](const std::string& field) {
    return columns(10,
                   {{"x", number}, {"fare", [&](int row) { return row == 4 ? field : "7.5"; }}});
  };
  EXPECT_THAT(data_error_of([&] { schema(with("abc")); }),
              HasSubstr("expected a number, got \"abc\"; 9 of 10 values of fare are numbers"));
  EXPECT_THAT(data_error_of([&] { schema(with("\"1,234.5\"")); }), HasSubstr(kNumberForm));
  const auto ticket = [](int row) { return row % 4 == 0 ? "A/5 21" : std::to_string(row); };
  EXPECT_THAT(schema(columns(12, {{"x", number}, {"ticket", ticket}})).summary(),
              ::testing::Contains("words: ticket (10 values)"));
}

TEST_F(CsvInference, RefusesAmbiguousDates) {
  const auto date = [](int row) { return "0" + std::to_string(1 + row % 9) + "/02/2024"; };
  EXPECT_THAT(data_error_of([&] {
                schema(columns(10, {{"x", number}, {"since", date}}));
              }),
              HasSubstr("expected a date such as 2026-11-28, 2026-11-28 12:30:00 or 28.11.2026, as "
                        "01/02/2024 may be February 1 or January 2: write 2024-02-01, or "
                        "drop=since, got \"01/02/2024\""));
}

TEST_F(CsvInference, CountsUnknownWords) {
  const auto color = [](int row) { return row % 2 == 0 ? "red" : row == 5 ? "lilac" : "blue"; };
  const CsvSource training = read_table(columns(20, {{"x", number}, {"color", color}}));
  const TableFeature& feature = training.info().table->features[1];
  EXPECT_THAT(feature.vocabulary, ElementsAre("blue", "red"));
  EXPECT_THAT(training.info().table->summary(),
              ::testing::Contains("words: color (2 values, 1 row with a word of one row)"));
  EXPECT_THAT(read(training, 5).features(), ElementsAre(::testing::_, 0, 0, 1))
      << "a word of one row is as an unknown one";
  write_bytes(path_, "x,color,k\n1,green,a\n2,red,b\n");
  const CsvSource other(path_, {.schema = training.info().table});
  EXPECT_THAT(read(other, 0).features(), ElementsAre(::testing::_, 0, 0, 1));
  EXPECT_THAT(read(other, 1).features(), ElementsAre(::testing::_, 0, 1, 0));
  EXPECT_THAT(other.info().table->warnings(training.info().table.get()),
              ElementsAre("color: 1 of 2 rows have values that the training table does not have "
                          "(there 1 of 20)"));
  EXPECT_THAT(data_error_of([&] {
                const CsvSource strict =
                    read_table(columns(20, {{"x", number}, {"color", color}}), "unknown=error");
                write_bytes(path_, "x,color,k\n1,green,a\n");
                CsvSource(path_, {.schema = strict.info().table});
              }),
              HasSubstr("expected a value that the column color of the training data has"));
}

TEST_F(CsvInference, KeepsMissingWordsAsAValue) {
  const auto deck = [](int row) { return row == 4 ? "" : row % 2 == 0 ? "A" : "B"; };
  const TableSchema all = schema(columns(20, {{"x", number}, {"deck", deck}}));
  EXPECT_THAT(all.features[1].vocabulary, ElementsAre("A", "B", "NA"));
  EXPECT_THAT(all.summary(), ::testing::Contains("words: deck (3 values, 1 missing)"));
}

TEST_F(CsvInference, IsOffForNumbersAsStored) {
  EXPECT_THAT(error("x,color,k\n1,red,a\n2,blue,b\n"), HasSubstr("expected a number"));
}

}  // namespace
}  // namespace lockstep::inline v0::data
