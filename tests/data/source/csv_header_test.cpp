// Detection of a table's header, and how columns are found with it.
#include "lockstep/data/source/csv/csv_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/data/source/csv/csv_source.h"
#include "tests/data/source/csv_fixture.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CsvHeaderTest : public CsvFixture {
 protected:
  /// The reason why the first row is doubtful; empty if it is not.
  std::string doubt(const std::string& text, const CsvOptions& options = {}) const {
    try {
      open(text, options);
    } catch (const DoubtfulHeader& error) {
      EXPECT_EQ(error.category(), ErrorCategory::data);
      EXPECT_THAT(error.message().expected, HasSubstr("expected header=yes or header=no"));
      const std::string& got = error.message().actual;
      return got.substr(got.find(": ") + 2);
    }
    return "";
  }

  /// Three columns of fractions and a class.
  const std::string rows_ =
      "1.288,1.449,0.066,1\n-0.765,-1.092,0.031,0\n-1.022,-1.437,0.199,0\n0.111,0.322,-0.473,1\n";
};

TEST_F(CsvHeaderTest, IsDoubtfulIfRecordsWouldNotHaveItsNumbers) {
  const std::string whole = "5,1,0,1\n9,7,0,0\n7,3,9,1\n2,4,4,0\n";
  for (const auto& [first, rows, reason] : std::vector<std::array<std::string, 3>>{
           {"0,1,2,3\n", rows_, "it counts the columns from 0"},
           {",0,1\n", "0,2.5,1\n1,3.5,0\n", "it counts the columns from 0"},
           {"0,1\n", "5,1\n7,0\n3,1\n", "it counts the columns from 0"},
           {"1990,1995,2000,2005\n", whole, "its numbers have a constant step"},
           {"4,3,2,1\n", whole, "its numbers have a constant step"},
           {"\"5\",\"4\",\"1\",\"3\"\n", whole, "its 5 is in quotes"},
           {"5,4,1,3\n", "5,1,0,up\n9,7,0,down\n7,3,9,up\n", "it has the number 3 above words"},
           {",5,7\n", "0,1,1\n1,3,0\n2,9,1\n", "its first field is empty"},
           {"7,-1,5,1\n", rows_ + "0.5,0.1,0.7,0\n", "it has integers where the rows below have"},
           {"380,410,550,1\n", whole, "its numbers are far outside the range"},
           {"5.5,class\n",
            "5.1,up\n5.9,up\n5.2,down\n5.7,down\n5.3,up\n5.1,up\n5.9,up\n5.2,down\n5.7,down\n5.3,"
            "up\n",
            "its class is not among the words of the column"},
           {"a,5,1\n", "3,6,0\n", "it has numbers in some of the columns of numbers, but not in"},
           {"red,apple\n", "blue,pear\n", "neither this row nor those below have a number"}}) {
    EXPECT_THAT(doubt(first + rows), HasSubstr(reason)) << first;
    EXPECT_EQ(CsvSource::contents(path_, {.header = CsvHeader::yes}).rows + 1,
              CsvSource::contents(path_, {.header = CsvHeader::no}).rows)
        << first;
  }
}

TEST_F(CsvHeaderTest, IsARecordIfTheRowsBelowAgree) {
  for (const std::string& text :
       {rows_, std::string("1,2,3\n4,5,6\n"), std::string("0,1\n1,0\n0,1\n"),
        // Sorted by a column, an integer above fractions, one outlier.
        std::string("1990,5,1\n1991,4,0\n1992,7,1\n1993,5,0\n"),
        std::string("5,3.5,1.4,0\n4.9,3.0,1.4,1\n4.7,3.2,1.3,1\n4,3.1,1.5,0\n"),
        std::string("900,0.5,1\n3,0.1,0\n5,0.9,1\n4,0.7,0\n"),
        std::string("5,red,up\n7,blue,up\n6,red,down\n"), std::string("3,1\n")}) {
    CsvOptions options;
    if (text.find("red") != std::string::npos) options.categorical = {"2"};
    const auto rows = std::ranges::count(text, '\n');
    const CsvSource source = open(text, options);
    EXPECT_EQ(source.size(), rows) << text;
    EXPECT_FALSE(source.info().table->has_header);
    EXPECT_EQ(source.info().feature_names.at(0), "1");
  }
  EXPECT_THAT(error("\"1,234.50\",a\n2.5,b\n3.5,a\n4.5,b\n", {}),
              HasSubstr("line 1, column 1] expected a number such as 1234.5"));
}

TEST_F(CsvHeaderTest, IsDetectedByNamesInOptionsOrFeaturesFile) {
  const std::string text = "400,401,402,403\n" + rows_;
  for (const CsvOptions& options :
       {CsvOptions{.label = "403"}, CsvOptions{.targets = {"400"}}, CsvOptions{.columns = {"401"}},
        CsvOptions{.leave_out = {"402"}}}) {
    const CsvSource source = open(text, options);
    EXPECT_EQ(source.size(), 4);
    EXPECT_TRUE(source.info().table->has_header);
  }
  EXPECT_THAT(open(text, {.targets = {"403"}}).info().feature_names,
              ElementsAre("400", "401", "402"));
  EXPECT_THAT(doubt(text, {.targets = {"4"}}), HasSubstr("constant step"))
      << "4 is the number of a column";
  write_bytes(directory_ / "f.json", R"({"features": [{"column": "401", "clip": [0, 1]}]})");
  EXPECT_EQ(open(text, {.features = directory_ / "f.json"}).size(), 4);
  write_bytes(directory_ / "f.json", R"({"drop": ["402"]})");
  EXPECT_EQ(open(text, {.features = directory_ / "f.json"}).size(), 4);
}

TEST_F(CsvHeaderTest, FindsColumnsOfTheTrainingByNameOrFails) {
  const auto schema = open("2018,2019,2020,class\n" + rows_, {.label = "class"}).info().table;
  EXPECT_EQ(TableSchema::from_checkpoint(schema->to_json(), "state.json"), *schema);
  EXPECT_TRUE(schema->has_header);
  const CsvOptions evaluation{.schema = schema};
  const CsvOptions prediction{.schema = schema, .may_lack_labels = true};
  const CsvSource swapped = open("2020,class,2018,2019\n3,1,1,2\n6,0,4,5\n", evaluation);
  EXPECT_EQ(swapped.size(), 2);
  EXPECT_THAT(read(swapped, 1).features(), ElementsAre(4, 5, 6));
  EXPECT_EQ(read(swapped, 1).label(), 0);
  const CsvSource unlabelled = open("2020,2018,2019\n3,1,2\n", prediction);
  EXPECT_EQ(unlabelled.size(), 1);
  EXPECT_THAT(read(unlabelled, 0).features(), ElementsAre(1, 2, 3));
  const std::string names =
      "expected a first row with the names of the columns, as in the "
      "training data: 2018, 2019, 2020";
  EXPECT_THAT(error(rows_, evaluation), HasSubstr(names + ", got \"1.288, 1.449, 0.066, 1\""));
  EXPECT_THAT(error("2018,2019,2020,class\n" + rows_, {.header = CsvHeader::no, .schema = schema}),
              HasSubstr(names + ", got header=no"));
  EXPECT_THAT(error("2018,2019,2021,class\n" + rows_, evaluation),
              HasSubstr("expected the column 2020, a feature of the training data; the columns "
                        "are 2018, 2019, 2021, class"));
  // A column number is not a name.
  const auto small = open("1,3,class\n5,6,0\n7,8,1\n", {.header = CsvHeader::yes}).info().table;
  EXPECT_THAT(error("1,4,class\n5,6,0\n", {.schema = small}),
              HasSubstr("expected the column 3, a feature of the training data"));
  write_bytes(directory_ / "train.csv", "2018,2019,2020,class\n" + rows_);
  EXPECT_EQ(
      open("2020,class,2018,2019\n3,1,1,2\n", {.label = "class", .like = directory_ / "train.csv"})
          .size(),
      1);
}

TEST_F(CsvHeaderTest, FindsColumnsByPositionIfTheTrainingHasNoHeader) {
  const auto schema = open(rows_).info().table;
  EXPECT_FALSE(schema->has_header);
  const CsvOptions evaluation{.schema = schema};
  EXPECT_THAT(read(open("1,2,3,1\n4,5,6,0\n", evaluation), 1).features(), ElementsAre(4, 5, 6));
  const CsvSource named = open("b,a,c,k\n1,2,3,1\n", evaluation);
  EXPECT_EQ(named.size(), 1);
  EXPECT_THAT(read(named, 0).features(), ElementsAre(1, 2, 3));
  // Names that are numbers of columns do not change their order.
  EXPECT_THAT(
      read(open("3,2,1,4\n1,2,3,1\n", {.header = CsvHeader::yes, .schema = schema}), 0).features(),
      ElementsAre(1, 2, 3));
  EXPECT_THAT(error("1,2,3,4,1\n", evaluation),
              HasSubstr("expected the 4 columns of the training data, whose columns have no names, "
                        "in their order, got 5"));
  EXPECT_THAT(error("1,2,3\n", evaluation), HasSubstr("in their order, got 3"));
  EXPECT_THAT(read(open("1,2,3\n", {.schema = schema, .may_lack_labels = true}), 0).features(),
              ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace lockstep::inline v0::data
