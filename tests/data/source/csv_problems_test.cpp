// Messages about tables that cannot be read, or not as the options say.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/source/csv/csv_reader.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/table/schema.h"
#include "tests/data/source/csv_fixture.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;

class CsvProblemsTest : public CsvFixture {};

const std::string kMissingNumber =
    "expected a number (missing=mean or missing=indicator allows missing values; or remove these "
    "rows, or fill them in), ";

TEST_F(CsvProblemsTest, FindsAllProblemsInRowOrder) {
  std::vector<std::string> problems;
  const auto find = [&](const std::string& text, CsvOptions options = {}) {
    write_bytes(path_, text);
    options.infers = false;
    problems.clear();
    return CsvSource::find_problems(
        path_, options, [&](const Error& error) { problems.emplace_back(error.what()); });
  };
  const auto number = [](const std::string& got, const std::string& counts) {
    return "expected a number, got \"" + got + "\"; " + counts + " are numbers";
  };
  const std::string label = "expected a class number (an integer from 0), got ";
  EXPECT_EQ(find("a,b,c\n1,2,0\nx,2,0\n1,y,z\n1,2\n3,4,-1\n5,\"6,1\n"), 5);
  EXPECT_THAT(
      problems,
      ElementsAre(at("line 3, column 1") + number("x", "3 of 4 values of a"),
                  at("line 4, column 2") + number("y", "3 of 4 values of b"),
                  at("line 4, column 3") + label + "\"z\"",
                  at("line 5, column 2") + "expected 3 columns, as in the first row; there are 2",
                  at("line 6, column 3") + label + "\"-1\"",
                  at("line 7, column 2") +
                      "expected a quote that closes the field; the file ends without one"));
  EXPECT_EQ(find("size,kind\n1,plum\n2,\nx,fig\n"), 3);
  EXPECT_THAT(problems,
              ElementsAre(at("line 3, column 2") +
                              "expected a class (remove these rows, or fill them in), got \"\"; "
                              "missing: kind in 1 row (first in line 3)",
                          at("line 4, column 1") + number("x", "2 of 3 values of size")));
  EXPECT_EQ(find("a,b,c\n1,2,0\nx,NA,0\n2,2,0\n3,2,0\n,two,1\ny,z,-1\n"), 6);
  EXPECT_THAT(problems,
              ElementsAre(at("line 3, column 1") + number("x", "3 of 5 values of a"),
                          at("line 3, column 2") + kMissingNumber +
                              "got \"NA\"; missing: a in 1 row (first in line 6), b in 1 row "
                              "(first in line 3)",
                          at("line 6, column 2") + number("two", "3 of 5 values of b"),
                          at("line 7, column 1") + number("y", "3 of 5 values of a"),
                          at("line 7, column 2") + number("z", "3 of 5 values of b"),
                          at("line 7, column 3") + label + "\"-1\""));
  EXPECT_EQ(find("a,b,c\n1,two,0\n2,three,0\n3,4,0\n"), 3);
  EXPECT_THAT(problems,
              ElementsAre(at("line 2, column 2") +
                          "expected a number, or a column of words: categorical=b, got \"two\" (2 "
                          "fields of this column are not numbers)"))
      << "a column of words is one problem";
  EXPECT_EQ(find(kFruit, {.categorical = {"color"}}), 3);
  EXPECT_THAT(problems, ElementsAre());
  EXPECT_EQ(find(""), 0);
  EXPECT_THAT(problems, ElementsAre(file_prefix() + "expected rows; the file has none"));
}

TEST_F(CsvProblemsTest, NamesFileLineAndColumn) {
  const std::string needed_number = "expected a number, or a column of words: categorical=";
  EXPECT_EQ(error("1,2,0\n1,x,0\n"), at("line 2, column 2") + needed_number + "2, got \"x\"");
  EXPECT_EQ(error("1,2,0\n1,,0\n"), at("line 2, column 2") + kMissingNumber +
                                        "got \"\"; missing: 2 in 1 row (first in line 2)");
  EXPECT_EQ(error("1,2,0\n-inf,2,0\n"),
            at("line 2, column 1") + "expected a finite number, got \"-inf\"");
  EXPECT_EQ(error("1,2,0\n1e99,2,0\n"),
            at("line 2, column 1") + "expected a number that fits a float, got \"1e99\"");
  for (const std::string number : {"1e400", "-1e400", "1e99999"})
    EXPECT_EQ(
        error("a,b,c\n" + number + ",2,0\n"),
        at("line 2, column 1") + "expected a number that fits a float, got \"" + number + "\"");
  for (const std::string& number :
       {std::string("1e-400"), std::string("-1e-400"), std::string("1e-99999"),
        std::string("0.0001e-398"), "0." + std::string(400, '0') + "1"})
    EXPECT_THAT(read(open("a,b,c\n" + number + ",2,0\n"), 0).features(), ElementsAre(0, 2));
  EXPECT_EQ(error("a,b,c\n1" + std::string(400, '0') + ",2,0\n").substr(0, 20),
            at("line 2, column 1").substr(0, 20));
  EXPECT_EQ(error("1,2,1e400\n"),
            at("line 1, column 3") + "expected a class number (an integer from 0), got \"1e400\"");
  EXPECT_EQ(error("1,2,0\n1,2,setosa\n"),
            at("line 2, column 3") + "expected a class number (an integer from 0), got \"setosa\"");
  EXPECT_EQ(error("1,2,0\n1,2,-1\n"),
            at("line 2, column 3") + "expected a class number (an integer from 0), got \"-1\"");
  EXPECT_EQ(error("1,2,0.5\n"),
            at("line 1, column 3") + "expected a class number (an integer from 0), got \"0.5\"");
  EXPECT_EQ(error("1,2,0\n1,2\n"),
            at("line 2, column 2") + "expected 3 columns, as in the first row; there are 2");
  EXPECT_EQ(error("1,2,0\n1,2,3,0\n"),
            at("line 2, column 3") + "expected 3 columns, as in the first row; there are 4");
  EXPECT_EQ(error("a,b\n1,2,0\n"),
            at("line 2, column 2") + "expected 2 columns, as in the first row; there are 3");
  EXPECT_EQ(error("1\n2\n"), file_prefix() + "expected a feature and a label; there is one column");
}

TEST_F(CsvProblemsTest, RequiresRows) {
  EXPECT_EQ(error(""), file_prefix() + "expected rows; the file has none");
  EXPECT_EQ(error("a,b,c\n"), file_prefix() + "expected rows; the file has a header alone");
  EXPECT_EQ(data_error_of([] { CsvSource source("nowhere.csv"); }),
            "[nowhere.csv] expected a file that can be read; No such file or directory");
}

TEST_F(CsvProblemsTest, SuggestsAFixForFieldsThatAreNotNumbers) {
  for (const std::string missing : {"", "NA", "N/A", "#N/A", "<NA>", "NULL", "null", "None", "NaN",
                                    "nan", "-nan", "?", "-", ".", "\\N"}) {
    const std::string expected = fmt::format("{}got \"{}\"; missing: ", kMissingNumber, missing);
    EXPECT_EQ(error("a,b,c\n1,2,0\n" + missing + ",x,0\n"),
              at("line 3, column 1") + expected + "a in 1 row (first in line 3)");
    EXPECT_EQ(error("a,b\n1,2\n3," + missing + "\n", {.targets = {"b"}}),
              at("line 3, column 2") +
                  "expected a number (remove these rows, or fill them in), got \"" + missing +
                  "\"; missing: b in 1 row (first in line 3)");
    EXPECT_EQ(error("a,c\n1,0\n3," + missing + "\n"),
              at("line 3, column 2") +
                  "expected a class number (remove these rows, or fill them in), got \"" + missing +
                  "\"; missing: c in 1 row (first in line 3)");
  }
  EXPECT_EQ(error("a,b,c\n1,2,0\n\"3,5\",2,0\n"),
            at("line 3, column 1") + kNumberForm + ", got \"3,5\"; 1 of 2 values of a are numbers");
  for (const std::string number : {"14,458.30", "1'000", "1 000", "$5", "12%", "12 %", "3 €"})
    EXPECT_EQ(error("a,b,c\n1,2,0\n\"" + number + "\",2,0\n3,2,0\n"),
              at("line 3, column 1") + kNumberForm + ", got \"" + number +
                  "\"; 2 of 3 values of a are numbers")
        << "no column of words";
}

TEST_F(CsvProblemsTest, NamesAllColumnsWithMissingValuesOnce) {
  const std::string text =
      "age,fare,port,cabin,label\n"
      "1,2,NA,C1,0\n?,2,S,,0\n1,NA,S,NA,NA\n,NULL,,C2,1\n1,x,Q,C1,1\n";
  const CsvOptions options{.leave_out = {"cabin"}, .categorical = {"port"}, .infers = false};
  const std::string missing = at("line 3, column 1") + kMissingNumber +
                              "got \"?\"; missing: age in 2 rows (first in line 3), fare in 2 rows "
                              "(first in line 4), label in 1 row (first in line 4)";
  EXPECT_EQ(error(text, options), missing);
  write_bytes(path_, text);
  std::vector<std::string> problems;
  EXPECT_EQ(CsvSource::find_problems(path_, options,
                                     [&](const Error& e) { problems.emplace_back(e.what()); }),
            5);
  EXPECT_THAT(problems,
              ElementsAre(missing, at("line 6, column 2") +
                                       "expected a number, got \"x\"; 2 of 3 values of fare are "
                                       "numbers"));
  EXPECT_EQ(error("a,b,c\n1,NA,0\n2,NA,0\n"),
            at("line 2, column 2") +
                "expected a number (drop=b: the column has no values), got \"NA\"; missing: b in 2 "
                "rows (first in line 2)");
  EXPECT_EQ(
      error("a,b,c\n1,NA,0\n2,x,0\n"),
      at("line 2, column 2") + "expected a number, or a column of words: categorical=b, got \"NA\"")
      << "missing=mean would not help";
}

TEST_F(CsvProblemsTest, ReportsDates) {
  for (const std::string date : {"24.11.26", "11/24/26", "11/24/2012"})
    EXPECT_EQ(error("size,made,kind\n1," + date + ",0\n"),
              at("line 2, column 2") +
                  "expected a number (drop=made, or write the dates as 2026-11-24, which features "
                  "files can read), got \"" +
                  date + "\"");
  for (const std::string date : {"2026-11-24", "2026-11-24T10:30:00"})
    EXPECT_EQ(error("size,made,kind\n1," + date + ",0\n"),
              at("line 2, column 2") +
                  "expected a number (drop=made, or describe the column in a features file: "
                  "{\"column\": \"made\", \"date\": \"days\"}), got \"" +
                  date + "\"");
  for (const std::string word : {"1-2", "1.2-3", "10.0.0.1", "2026-11-24b", "12345-1-1", "True"})
    EXPECT_EQ(error("size,made,kind\n1," + word + ",0\n"),
              at("line 2, column 2") +
                  "expected a number, or a column of words: categorical=made, "
                  "got \"" +
                  word + "\"");
}

TEST_F(CsvProblemsTest, ReportsAMissingClassZero) {
  EXPECT_EQ(open("1,1\n2,3\n").info().description,
            path_.string() + ", labels from 1 to 3 (4 classes, none of class 0)");
  EXPECT_EQ(open("1,0\n2,3\n").info().description, path_.string());
  EXPECT_EQ(open("1,b\n2,a\n").info().description, path_.string());
}

TEST_F(CsvProblemsTest, NamesAllColumnsOfWordsAtOnce) {
  const std::string text = "color,size,shape,made,kind\nred,\"1,5\",round,1.2.2026,1\n";
  const std::string expected =
      "expected a number, or columns of words: categorical=color+shape, got ";
  EXPECT_EQ(error(text), at("line 2, column 1") + expected + "\"red\"");
  EXPECT_EQ(error("color,size,shape,kind\nred,1,round,1\n", {.categorical = {"color"}}),
            at("line 2, column 3") + expected + "\"round\"");
}

TEST_F(CsvProblemsTest, NamesTheSeparatorOfATable) {
  EXPECT_EQ(
      error("a;b;kind\n1,5;2;0\n"),
      file_prefix() +
          "expected a comma between columns, or another separator as in 'csv:FILE:sep=semicolon'; "
          "the first row has \";\" instead");
  for (const std::string header : {"a\tb\tkind", "\"a\"\t\"b\"\t\"kind\"", "\ta\tkind"})
    EXPECT_EQ(
        error("\n" + header + "\n1\t2\t0\n"),
        file_prefix() +
            "expected a comma between columns, or another separator as in 'csv:FILE:sep=tab'; "
            "the first row has a tab instead");
  EXPECT_EQ(error("a|kind\n1|0\n"),
            file_prefix() +
                "expected a comma between columns, or another separator as in "
                "'csv:FILE:sep=pipe'; the first row has \"|\" instead");
  EXPECT_EQ(open("a|kind\n1|0\n", {.separator = '|'}).info().feature_names.at(0), "a");
  EXPECT_EQ(open("\"a;\nb\",kind\n1,0\n").info().feature_names.at(0), "a;\nb");
  EXPECT_EQ(
      error("a,b,kind\n1,2,0\n", {.separator = '\t'}),
      file_prefix() +
          "expected a tab between columns, or another separator as in 'csv:FILE:sep=comma'; the "
          "first row has a comma instead");
}

TEST_F(CsvProblemsTest, RejectsOtherEncodingsAndLineEnds) {
  for (const std::string& text : {std::string("\xff\xfe"
                                              "a\0,\0",
                                              6),
                                  std::string("\xfe\xff\0a", 4), std::string("a\0,\0b\0", 6)})
    EXPECT_EQ(error(text),
              file_prefix() +
                  "expected a table in UTF-8 (iconv -f UTF-16 -t UTF-8 converts one in UTF-16), "
                  "got UTF-16, or no text");
  EXPECT_EQ(
      error("a,kind\n1,rot\n2,gr\xfcn\n"),
      at("line 3") +
          "expected a table in UTF-8 (csv:FILE:encoding=latin1 reads one in Latin-1; iconv -f "
          "LATIN1 -t UTF-8 converts it), got the byte 0xfc");
  EXPECT_THAT(open("a,kind\n1,rot\n2,gr\xc3\xbcn\n").info().class_names,
              ElementsAre("gr\u00fcn", "rot"));
  EXPECT_EQ(error("a,kind\r1,0\r2,1\r"),
            file_prefix() +
                "expected lines that end in LF or CRLF (tr '\\r' '\\n' converts them); they end in "
                "CR alone");
}

TEST_F(CsvProblemsTest, DistinguishesAHeaderFromARowOfWords) {
  EXPECT_EQ(open("red,5,1\nblue,6,0\n", {.categorical = {"1"}}).size(), 2);
  EXPECT_EQ(open("color,size,class\nblue,6,0\n", {.categorical = {"1"}}).size(), 1);
  EXPECT_EQ(open("red,5,1\n", {.categorical = {"1"}}).size(), 1);
  EXPECT_EQ(open("color,kind\nred,apple\n", {.categorical = {"color"}}).size(),
            1);  // the option names it
  const std::string needed = file_prefix() +
                             "expected header=yes or header=no, to state whether the first row "
                             "names the columns (lockstep "
                             "data inspect shows both readings), got ";
  EXPECT_EQ(error("red,apple\nblue,pear\n", {.categorical = {"1"}}),
            needed + "\"red,apple\": neither this row nor those below have a number");
  EXPECT_EQ(error("x,5,1\n3,6,0\n"),
            needed + "\"x,5,1\": it has numbers in some of the columns of numbers, but not in all");
  EXPECT_EQ(open("red,apple\nblue,pear\n", {.header = CsvHeader::no, .categorical = {"1"}}).size(),
            2);
  EXPECT_EQ(open("2019,2020,2021\n1,2,0\n", {.header = CsvHeader::yes, .label = "2019"}).size(), 1);
  for (const std::string missing : {"", "NA"})
    EXPECT_EQ(error(missing + ",5,1\n3,6,0\n"),
              fmt::format("{}{}got \"{}\"; missing: 1 in 1 row (first in line 1)",
                          at("line 1, column 1"), kMissingNumber, missing));
  EXPECT_EQ(error("a;b;kind\n1,5;2,5;x\n", {.separator = ';'}),
            at("line 2, column 1") + kNumberForm + ", got \"1,5\"");
}

TEST_F(CsvProblemsTest, NamesFilesThatAreNotTables) {
  EXPECT_EQ(error("\x1f\x8b\x08\x01 and so on"),
            file_prefix() + "expected a complete gzip stream; damaged gzip data before byte 14");
  EXPECT_EQ(error("<!DOCTYPE html>\n<html>"),
            file_prefix() +
                "expected a table in CSV, got an HTML page: the download failed, fetch the file "
                "again");
  EXPECT_EQ(error("a.cls" + std::string(251, '\0') + std::string("\0ustar\t\n", 8)),
            file_prefix() +
                "expected a table in CSV, got a tar archive, such as of WebDataset: unpack "
                "it");
  EXPECT_EQ(error("{\"a\": 1}\n{\"a\": 2}\n"), file_prefix() + "expected a table in CSV, got JSON");
}

// The seconds of an afternoon since 1970 are only four numbers in float32.
TEST_F(CsvProblemsTest, RejectsColumnsThatFloat32CannotStore) {
  std::string text = "time,place,y\n";
  for (int i = 0; i < 400; ++i)
    text += fmt::format("{},{},{}\n", 1'700'000'000 + i, 0.1 * i, i % 2);
  EXPECT_EQ(error(text),
            file_prefix() +
                "expected numbers in the column time that float32 can tell apart: scale=standard "
                "scales it before it is stored, drop= leaves it out; its 400 different numbers "
                "would become 4");
  EXPECT_EQ(error(text, {.targets = {"time"}}),
            file_prefix() +
                "expected numbers in the column time that float32 can tell apart: subtract a "
                "constant from this target; its 400 different numbers would become 4");
  EXPECT_EQ(open(text, {.leave_out = {"time"}}).size(), 400);
  const CsvSource scaled = open(text, {.scale = ColumnScale::standard});
  EXPECT_EQ(scaled.size(), 400);
  EXPECT_NEAR(read(scaled, 1).features()[0] - read(scaled, 0).features()[0], 1 / 115.47, 1e-5);
  // More digits than float32 has are no loss for numbers near 0 relative to their deviation.
  text = "a,y\n";
  for (int i = 0; i < 1000; ++i) text += fmt::format("{:.17g},{}\n", std::sin(i), i % 2);
  text += "0.5000000001,1\n0.5000000002,0\n";
  EXPECT_EQ(open(text).size(), 1002);
}

TEST_F(CsvProblemsTest, RejectsOptionsThatDoNotMatch) {
  const std::string text = "a,b,c\n1,2,0\n";
  EXPECT_EQ(
      input_error(text, {.label = "d"}),
      file_prefix() +
          "expected label= with columns of the table: a, b, c; or their numbers from 1, got \"d\"");
  EXPECT_EQ(input_error(text, {.categorical = {"4"}}),
            file_prefix() +
                "expected categorical= with columns of the table: a, b, c; or their numbers from "
                "1, got \"4\"");
  EXPECT_EQ(input_error(text, {.label = "a", .leave_out = {"1"}}),
            file_prefix() + "expected one meaning for the column a, got drop= and label=");
  EXPECT_EQ(input_error(text, {.label = "a", .targets = {"b"}}),
            file_prefix() + "expected a label or targets, got both");
  EXPECT_EQ(input_error(text, {.targets = {"b"}, .categorical = {"b"}}),
            file_prefix() + "expected targets that are numbers; b is categorical");
  EXPECT_EQ(error(text, {.leave_out = {"a", "b"}}),
            file_prefix() + "expected a feature and a label; no column is left for features");
  EXPECT_EQ(error("1,2,x\n1,2,\n"),
            at("line 2, column 3") +
                "expected a class (remove these rows, or fill them in), got \"\"; missing: 3 in 1 "
                "row (first in line 2)");
  EXPECT_EQ(error("a,b,label,\n1,2,0,\n3,4,1,\n"),
            file_prefix() +
                "expected a label in the last column; where each line ends in a separator, "
                "label=COLUMN names the label and drop=4 leaves that column out; the last field of "
                "the first lines is empty");
  EXPECT_EQ(open("a,b,label,\n1,2,0,\n3,4,1,\n", {.label = "label", .leave_out = {"4"}}).size(), 2);
}

TEST_F(CsvProblemsTest, RejectsUnknownCategories) {
  std::string text;
  for (std::size_t i = 0; i <= CsvReader::kMaxValues; ++i) text += std::to_string(i) + ",1,0\n";
  EXPECT_EQ(error(text, {.categorical = {"1"}}),
            at("line 10001, column 1") +
                "expected at most 10000 different values in the column 1; drop=1 leaves it out; "
                "\"10000\" "
                "is one more");
}

TEST_F(CsvProblemsTest, RejectsDuplicateColumns) {
  EXPECT_THAT(error("a,a,label\n1,2,0\n"),
              ::testing::HasSubstr(
                  "expected columns of different names; columns 1 and 2 are both called a"));
  EXPECT_EQ(open(",b,label\n7,2,0\n1,2,1\n").spec().shape(), (std::vector<std::int64_t>{2}))
      << "1 is the name of the first";
}

}  // namespace
}  // namespace lockstep::inline v0::data
