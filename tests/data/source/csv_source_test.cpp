#include "lockstep/data/source/csv_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/data/source/table_options.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class CsvTest : public ::testing::Test {
 protected:
  /// Numbers are unscaled, unless the options set a scale.
  CsvSource open(const std::string& text, CsvOptions options = {}) const {
    write_bytes(path_, text);
    if (!options.scale) options.scale = ColumnScale::none;
    return CsvSource(path_, options);
  }
  std::string error(const std::string& text, const CsvOptions& options = {}) const {
    return data_error_of([&] { open(text, options); });
  }
  std::string input_error(const std::string& text, const CsvOptions& options) const {
    return input_error_of([&] { open(text, options); });
  }
  std::string at(const std::string& place) const {
    return "[" + path_.string() + ": " + place + "] ";
  }
  std::string file_prefix() const { return "[" + path_.string() + "] "; }

  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "table.csv";
};

const std::string kMissingNumber =
    "expected a number (missing=mean or missing=indicator allows missing values; or remove these "
    "rows, or fill them in), ";

const std::string kNumberForm =
    "expected a number such as 1234.5: a decimal point, and no other separators or units";

constexpr const char* kFruit =
    "color,size,kind\n"
    "red,5,apple\n"
    "green,6,pear\n"
    "yellow,4,apple\n";

TEST_F(CsvTest, ReadsRowsWithAndWithoutHeader) {
  for (const char* header :
       {"", "3,2,setosa,versicolor,virginica\n", "a,b,class\n", "\"x\",\"y\",\"z\"\r\n",
        "\xef\xbb\xbf"
        "a,b,c\n"}) {
    const CsvSource source = open(std::string(header) + "6.4,-2.8,2\n+1e-3, 3 ,0\r\n\n7,8,1");
    EXPECT_EQ(source.size(), 3) << header;
    EXPECT_EQ(source.spec(), SampleSpec::classification({2}, 3));
    EXPECT_THAT(read(source, 0).features(), ElementsAre(6.4f, -2.8f));
    EXPECT_EQ(read(source, 0).label(), 2);
    EXPECT_THAT(read(source, 1).features(), ElementsAre(1e-3f, 3.0f));
    EXPECT_THAT(read(source, 2).features(), ElementsAre(7.0f, 8.0f));
    EXPECT_EQ(read(source, 2).label(), 1);
  }
}

TEST_F(CsvTest, FindsAllProblemsInRowOrder) {
  std::vector<std::string> problems;
  const auto find = [&](const std::string& text, const CsvOptions& options = {}) {
    write_bytes(path_, text);
    problems.clear();
    return CsvSource::find_problems(path_, options,
                                    [&](const Error& error) { problems.push_back(error.what()); });
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

TEST_F(CsvTest, NamesFileLineAndColumn) {
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

TEST_F(CsvTest, RequiresRows) {
  EXPECT_EQ(error(""), file_prefix() + "expected rows; the file has none");
  EXPECT_EQ(error("a,b,c\n"), file_prefix() + "expected rows; the file has a header alone");
  EXPECT_EQ(data_error_of([] { CsvSource source("nowhere.csv"); }),
            "[nowhere.csv] expected a file that can be read; No such file or directory");
}

TEST_F(CsvTest, NumbersWordsIndependentlyOfRowOrder) {
  const CsvSource source = open(kFruit, {.categorical = {"color"}});
  EXPECT_EQ(source.spec(), SampleSpec::classification({4}, 2));
  EXPECT_THAT(source.info().feature_names,
              ElementsAre("color=green", "color=red", "color=yellow", "size"));
  EXPECT_THAT(source.info().class_names, ElementsAre("apple", "pear"));
  EXPECT_THAT(read(source, 0).features(), ElementsAre(0, 1, 0, 5));
  EXPECT_THAT(read(source, 1).features(), ElementsAre(1, 0, 0, 6));
  EXPECT_THAT(read(source, 2).features(), ElementsAre(0, 0, 1, 4));
  EXPECT_EQ(read(source, 0).label(), 0);
  EXPECT_EQ(read(source, 1).label(), 1);
  const CsvSource turned =
      open("color,size,kind\nyellow,4,pear\ngreen,6,apple\nred,1,apple\n", {.categorical = {"1"}});
  EXPECT_EQ(turned.info().feature_names, source.info().feature_names);
  EXPECT_EQ(turned.info().class_names, source.info().class_names);
  EXPECT_THAT(read(turned, 0).features(), ElementsAre(0, 0, 1, 4));
  EXPECT_EQ(read(turned, 0).label(), 1);
  EXPECT_EQ(read(turned, 1).label(), 0);
}

TEST_F(CsvTest, ColumnsAreChosenByNameOrNumber) {
  const std::string text = "id,kind,width,height,price\n17,1,2,3,4.5\n18,0,5,6,7.5\n";
  const CsvSource left = open(text, {.label = "kind", .leave_out = {"id", "price"}});
  EXPECT_THAT(left.info().feature_names, ElementsAre("width", "height"));
  EXPECT_EQ(read(left, 0).label(), 1);
  const CsvSource chosen = open(text, {.label = "2", .columns = {"height", "3"}});
  EXPECT_THAT(read(chosen, 1).features(), ElementsAre(6, 5));
  EXPECT_EQ(chosen.spec().classes(), 2);
}

TEST_F(CsvTest, TargetsReplaceTheLabel) {
  const CsvSource source =
      open("a,price,b,rate\n1,2,3,4\n5,6,7,8\n", {.targets = {"rate", "price"}});
  EXPECT_EQ(source.spec(), SampleSpec::regression({2}, 2));
  EXPECT_THAT(source.info().target_names, ElementsAre("rate", "price"));
  EXPECT_THAT(read(source, 1).features(), ElementsAre(5, 7));
  EXPECT_THAT(read(source, 1).values(), ElementsAre(8, 6));
  EXPECT_EQ(
      error("a,b\n1,x\n", {.targets = {"b"}}),
      at("line 2, column 2") + "expected a number, or label=b for a column of classes, got \"x\"");
}

TEST_F(CsvTest, SuggestsAFixForFieldsThatAreNotNumbers) {
  for (const std::string missing : {"", "NA", "N/A", "#N/A", "<NA>", "NULL", "null", "None", "NaN",
                                    "nan", "-nan", "?", "-", ".", "\\N"}) {
    const std::string expected = kMissingNumber + "got \"" + missing + "\"; missing: ";
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

TEST_F(CsvTest, NamesAllColumnsWithMissingValuesOnce) {
  const std::string text =
      "age,fare,port,cabin,label\n"
      "1,2,NA,C1,0\n?,2,S,,0\n1,NA,S,NA,NA\n,NULL,,C2,1\n1,x,Q,C1,1\n";
  const CsvOptions options{.leave_out = {"cabin"}, .categorical = {"port"}};
  const std::string missing = at("line 3, column 1") + kMissingNumber +
                              "got \"?\"; missing: age in 2 rows (first in line 3), fare in 2 rows "
                              "(first in line 4), label in 1 row (first in line 4)";
  EXPECT_EQ(error(text, options), missing);
  write_bytes(path_, text);
  std::vector<std::string> problems;
  EXPECT_EQ(CsvSource::find_problems(path_, options,
                                     [&](const Error& e) { problems.push_back(e.what()); }),
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

TEST_F(CsvTest, ReportsDates) {
  for (const std::string date : {"24.11.2026", "11/24/26", "2012/01/01"})
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

TEST_F(CsvTest, ReportsAMissingClassZero) {
  EXPECT_EQ(open("1,1\n2,3\n").info().description,
            path_.string() + ", labels from 1 to 3 (4 classes, none of class 0)");
  EXPECT_EQ(open("1,0\n2,3\n").info().description, path_.string());
  EXPECT_EQ(open("1,b\n2,a\n").info().description, path_.string());
}

TEST_F(CsvTest, NamesAllColumnsOfWordsAtOnce) {
  const std::string text = "color,size,shape,made,kind\nred,\"1,5\",round,1.2.2026,1\n";
  const std::string expected =
      "expected a number, or columns of words: categorical=color+shape, got ";
  EXPECT_EQ(error(text), at("line 2, column 1") + expected + "\"red\"");
  EXPECT_EQ(error("color,size,shape,kind\nred,1,round,1\n", {.categorical = {"color"}}),
            at("line 2, column 3") + expected + "\"round\"");
}

TEST_F(CsvTest, ColumnsMayBeSeparatedBySemicolonsOrTabs) {
  const CsvSource semicolons = open("a;\tb;kind\n1; 2 ;x\n3;\"4\";\"y;z\"\n", {.separator = ';'});
  EXPECT_THAT(semicolons.info().feature_names, ElementsAre("a", "b"));
  EXPECT_THAT(semicolons.info().class_names, ElementsAre("x", "y;z"));
  EXPECT_THAT(read(semicolons, 1).features(), ElementsAre(3, 4));
  const CsvSource tabs = open("\tb\tkind\r\n1\t 2\tx, y\r\n", {.separator = '\t'});
  EXPECT_THAT(tabs.info().feature_names, ElementsAre("1", "b"));
  EXPECT_THAT(tabs.info().class_names, ElementsAre("x, y"));
  EXPECT_THAT(read(tabs, 0).features(), ElementsAre(1, 2));
  EXPECT_EQ(error("a;b\n\"1,5\";0\n", {.separator = ';'}),
            at("line 2, column 1") + kNumberForm + ", got \"1,5\"");
  EXPECT_EQ(error("1;\"2\"3;0\n", {.separator = ';'}),
            at("line 1, column 2") +
                "expected \";\" or the end of the line after the closing quote, got 3");
}

TEST_F(CsvTest, NamesTheSeparatorOfATable) {
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

TEST_F(CsvTest, RejectsOtherEncodingsAndLineEnds) {
  for (const std::string& text : {std::string("\xff\xfe"
                                              "a\0,\0",
                                              6),
                                  std::string("\xfe\xff\0a", 4), std::string("a\0,\0b\0", 6)})
    EXPECT_EQ(error(text),
              file_prefix() +
                  "expected a table in UTF-8 (iconv -f UTF-16 -t UTF-8 converts one in UTF-16), "
                  "got UTF-16, or no text");
  EXPECT_EQ(error("a,kind\n1,rot\n2,gr\xfcn\n"),
            at("line 3") +
                "expected a table in UTF-8 (iconv -f LATIN1 -t UTF-8 converts one in Latin-1), got "
                "the byte 0xfc");
  EXPECT_THAT(open("a,kind\n1,rot\n2,gr\xc3\xbcn\n").info().class_names,
              ElementsAre("gr\u00fcn", "rot"));
  EXPECT_EQ(error("a,kind\r1,0\r2,1\r"),
            file_prefix() +
                "expected lines that end in LF or CRLF (tr '\\r' '\\n' converts them); they end in "
                "CR alone");
}

TEST_F(CsvTest, DistinguishesAHeaderFromARowOfWords) {
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
    EXPECT_EQ(error(missing + ",5,1\n3,6,0\n"), at("line 1, column 1") + kMissingNumber + "got \"" +
                                                    missing +
                                                    "\"; missing: 1 in 1 row (first in line 1)");
  EXPECT_EQ(error("a;b;kind\n1,5;2,5;x\n", {.separator = ';'}),
            at("line 2, column 1") + kNumberForm + ", got \"1,5\"");
}

TEST_F(CsvTest, AHeaderMayStateCountsAndClasses) {
  const CsvSource source = open("2,2,setosa,versicolor,virginica\n1,2,0\n3,4,1\n");
  EXPECT_EQ(source.spec(), SampleSpec::classification({2}, 3));
  EXPECT_THAT(source.info().class_names, ElementsAre("setosa", "versicolor", "virginica"));
  EXPECT_EQ(open("1,5,yes,no\n1,2,3,4,5,0\n").spec(), SampleSpec::classification({5}, 2));
  EXPECT_EQ(error("3,2,setosa,versicolor\n1,2,0\n"),
            file_prefix() + "expected 3 rows, as stated in the first line; there are 1");
  EXPECT_THAT(error("1,9223372036854775807,yes,no\n1,2,3,0\n"),
              ::testing::HasSubstr("expected header=yes or header=no"));
  EXPECT_EQ(error("1,2,setosa,versicolor\n1,2,2\n"),
            at("line 2, column 3") + "expected a class number below 2, got \"2\"");
}

TEST_F(CsvTest, SkipsEmptyLines) {
  const std::filesystem::path known = directory_ / "train.csv";
  write_bytes(known, "color,kind\nred,apple\ngreen,pear\n");
  CsvOptions options{.categorical = {"color"}, .like = known};
  options.unknown_column = options.may_lack_labels = true;
  for (const std::string end : {"\n", "\r\n"})
    EXPECT_EQ(open("color" + end + "red" + end + end + "blue" + end, options).size(), 2);
}

TEST_F(CsvTest, ReadsAnotherTableWithTheWordsOfTheFirst) {
  const std::filesystem::path known = directory_ / "train.csv";
  write_bytes(known, kFruit);
  CsvOptions options{.categorical = {"color"}, .like = known};
  const CsvSource source = open("color,size,kind\nyellow,4,pear\n", options);
  EXPECT_EQ(source.spec(), SampleSpec::classification({4}, 2));
  EXPECT_THAT(read(source, 0).features(), ElementsAre(0, 0, 1, 4));
  EXPECT_EQ(read(source, 0).label(), 1);
  EXPECT_THAT(source.info().class_names, ElementsAre("apple", "pear"));
  EXPECT_EQ(error("color,size,kind\nblue,4,pear\n", options),
            at("line 2, column 1") + "expected a value that the column color of " + known.string() +
                " has (green, red, yellow), got \"blue\"; unknown from here on: 1 of 1 row");
  EXPECT_EQ(error("color,size,kind\nblue,4,pear\nred,4,pear\n", options),
            at("line 2, column 1") + "expected a value that the column color of " + known.string() +
                " has (green, red, yellow), or unknown=column in the training, got \"blue\"; "
                "unknown from here on: 1 of 2 rows");
  EXPECT_EQ(error("color,size,kind\nred,4,plum\n", options),
            at("line 2, column 3") + "expected one of the classes apple, pear, got \"plum\"");
  EXPECT_EQ(error("color,weight,kind\nred,4,pear\n", options),
            file_prefix() + "expected the column size, a feature of " + known.string() +
                "; the columns are color, weight, kind");
  options.unknown_column = true;
  const CsvSource unknown = open("color,size,kind\nblue,4,pear\n", options);
  EXPECT_THAT(read(unknown, 0).features(), ElementsAre(0, 0, 0, 1, 4));
  EXPECT_THAT(unknown.info().feature_names,
              ElementsAre("color=green", "color=red", "color=yellow", "color unknown", "size"));
  write_bytes(known, "color;size;kind\nred;5;apple\ngreen;6;pear\nyellow;4;apple\n");
  EXPECT_EQ(read(open("color,size,kind\nblue,4,pear\n", options), 0).features(),
            read(unknown, 0).features())
      << "with its own separator";
  write_bytes(known, "1,2,3\n");
  EXPECT_EQ(open("5,6,1\n", {.like = known}).spec().classes(), 4);
  EXPECT_EQ(error("5,6,4\n", {.like = known}),
            at("line 1, column 3") + "expected a class number below 4, got \"4\"");
}

TEST_F(CsvTest, ParsesPlainAndQuotedRowsAlike) {
  // The first row is parsed as a whole, the second by fields, because of the quotes.
  for (const std::string number :
       {"0", "-0", "007", "1", "-12.5", "0.1", "123456789.123456789", "9007199254740992",
        "9007199254740993", "0.3333333333333333", "999999999999999999", "1234567890123456789",
        "12345678901234567890", "0.000000000000000001", "1.", ".5", "1e3", "3.4028235e38"}) {
    const CsvSource source = open("a,b,k\n" + number + ",1,1.0\n" + number + ",\"1\",\"1.0\"\n");
    const auto expected = static_cast<float>(std::stod(number));
    EXPECT_THAT(read(source, 0).features(), ElementsAre(expected, 1)) << number;
    EXPECT_THAT(read(source, 1).features(), ElementsAre(expected, 1)) << number;
    EXPECT_EQ(read(source, 0).label(), 1);
    EXPECT_EQ(read(source, 1).label(), 1);
  }
  const CsvSource rows = open("1,2\r\n\n3,1\n 4 ,0\n5,2\n6,1", {.header = CsvHeader::no});
  EXPECT_EQ(rows.size(), 5);
  EXPECT_THAT(read(rows, 4).features(), ElementsAre(6));
  EXPECT_EQ(error("1,2\n\n3,1,1\n"),
            at("line 3, column 2") + "expected 2 columns, as in the first row; there are 3");
  EXPECT_EQ(error("1,2\n3,1\n4,-1\n"),
            at("line 3, column 2") + "expected a class number (an integer from 0), got \"-1\"");
}

TEST_F(CsvTest, NamesFilesThatAreNotTables) {
  EXPECT_EQ(error("\x1f\x8b\x08\x01 and so on"),
            file_prefix() + "expected a table in CSV, got a gzip file: decompress it");
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

TEST_F(CsvTest, PrefersAnExistingFileToOptions) {
  const auto file = directory_ / "what?.csv";
  write_bytes(file, "1,2,0\n");
  EXPECT_EQ(CsvSpec::parse(file.string(), "csv").file, file);
  EXPECT_EQ(CsvSpec::parse(file.string() + ":label=1", "csv").options.label, "1");
}

// The seconds of an afternoon since 1970 are only four numbers in float32.
TEST_F(CsvTest, RejectsColumnsThatFloat32CannotStore) {
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

TEST_F(CsvTest, KeepsBadRowsWithASchema) {
  const CsvSource training =
      open("a,b,kind\n1,2,apple\n3,4,pear\n", {.scale = ColumnScale::standard});
  CsvOptions known{.schema = training.info().table, .keeps_bad_rows = true};
  const std::string text = "b,a,kind\n2,1,apple\nx,3,pear\n4,,apple\n4\n4,3,plum\n4,3,pear\n";
  const CsvSource source = open(text, known);
  ASSERT_EQ(source.size(), 6);
  EXPECT_EQ(read(source, 0).features(), read(training, 0).features());
  EXPECT_EQ(read(source, 5).features(), read(training, 1).features());
  EXPECT_EQ(read(source, 5).label(), 1);
  EXPECT_THAT(data_error_of([&] { read(source, 1); }),
              ::testing::StartsWith(at("line 3, column 1") + "expected a number"));
  EXPECT_THAT(data_error_of([&] { read(source, 2); }),
              ::testing::StartsWith(at("line 4, column 2") + "expected a number"));
  EXPECT_THAT(data_error_of([&] { read(source, 3); }),
              ::testing::HasSubstr("expected 3 columns, as in the first row; there are 1"));
  EXPECT_THAT(data_error_of([&] { read(source, 4); }),
              ::testing::StartsWith(at("line 6, column 3") + "expected one of the classes"));
  EXPECT_THAT(source.info().table->counts.classes, ElementsAre(1, 1))
      << "of the rows that are read";
  known.may_lack_labels = true;  // a prediction reads none
  EXPECT_EQ(read(open(text, known), 4).features(), read(training, 1).features());
}

// Expected values: numpy.mean and numpy.std of each column.
TEST_F(CsvTest, StandardizesByTheStatisticsOfTheTable) {
  const std::string text =
      "a,b,same,color,kind\n6.4,1e9,0.1,red,1\n5.0,1000000001,0.1,blue,0\n4.9,999999998.5,0.1,red,"
      "1\n"
      "5.7,1000000000.25,0.1,blue,0\n";
  const CsvSource source = open(text, {.categorical = {"color"}, .scale = ColumnScale::standard});
  const auto& features = source.info().table->features;
  EXPECT_DOUBLE_EQ(features[0].offset, 5.5);
  EXPECT_DOUBLE_EQ(features[0].divisor, 0.6041522986797286);
  EXPECT_DOUBLE_EQ(features[1].offset, 999999999.9375);
  EXPECT_DOUBLE_EQ(features[1].divisor, 0.9078649403958718);
  EXPECT_EQ(features[2].offset, 0.1);
  EXPECT_EQ(features[2].divisor, 0);
  EXPECT_THAT(read(source, 0).features(),
              ElementsAre(1.489690542f, 0.06884283572f, 0.0f, 0.0f, 1.0f));
  EXPECT_EQ(source.info().description, path_.string() + ", 3 columns standardized");
  const CsvSource usual = CsvSource(path_, {.categorical = {"color"}});
  EXPECT_EQ(read(usual, 0).features(), read(source, 0).features()) << "the default";
  const CsvSource minmax = open(text, {.categorical = {"4"}, .scale = ColumnScale::minmax});
  EXPECT_THAT(read(minmax, 1).features(),
              ElementsAre(::testing::FloatEq(1.0f / 15), 1.0f, 0.0f, 1.0f, 0.0f));
}

TEST_F(CsvTest, ReadsAnotherTableWithTheTrainedSchema) {
  const CsvSource train =
      open("id,color,size,kind\n1,red,1,plum\n2,blue,3,apple\n",
           {.leave_out = {"id"}, .categorical = {"color"}, .scale = ColumnScale::standard});
  const auto stored = train.info().table->to_json();
  const auto schema =
      std::make_shared<const TableSchema>(TableSchema::from_checkpoint(stored, "state.json"));
  EXPECT_EQ(*schema, *train.info().table);
  EXPECT_TRUE(train.infers_schema());
  const CsvOptions options{.schema = schema};
  for (const std::string text :
       {"kind,size,color\nplum,5,red\n", "size,id,color,kind\n5,7,red,plum\n"}) {
    const CsvSource test = open(text, options);
    EXPECT_EQ(test.spec(), SampleSpec::classification({3}, 2)) << text;
    EXPECT_THAT(read(test, 0).features(), ElementsAre(0, 1, 3)) << text;
    EXPECT_EQ(read(test, 0).label(), 1);
    EXPECT_EQ(test.info().class_names, train.info().class_names);
    EXPECT_EQ(test.info().feature_names, train.info().feature_names);
    EXPECT_FALSE(test.infers_schema());
  }
  EXPECT_EQ(
      read(open("fruit,size,color\nplum,5,red\n", {.label = "fruit", .schema = schema}), 0).label(),
      1);
  EXPECT_EQ(error("kind,size\nplum,5\n", options),
            file_prefix() +
                "expected the column color, a feature of the training data; the columns "
                "are kind, size");
  EXPECT_EQ(error("size,color\n5,red\n", options),
            file_prefix() +
                "expected the column kind, the label of the training data; the columns "
                "are size, color");
  EXPECT_EQ(error("kind,size,color\nplum,5,green\n", options),
            at("line 2, column 3") +
                "expected a value that the column color of the training data "
                "has (blue, red), got \"green\"; unknown from here on: 1 of 1 row");
  EXPECT_EQ(input_error("kind,size,color\nplum,5,red\n",
                        {.columns = {"size", "color"}, .schema = schema}),
            file_prefix() + "expected columns=color+size, as in the training data, got size+color");
  // Without labels, for predictions.
  for (const std::string text : {"size,color\n5,red\n", "kind,size,color\nNA,5,red\n"}) {
    const CsvSource unlabelled = open(text, {.schema = schema, .may_lack_labels = true});
    EXPECT_EQ(unlabelled.spec().inputs, SampleSpec::classification({3}, 2).inputs) << text;
    EXPECT_THAT(read(unlabelled, 0).features(), ElementsAre(0, 1, 3)) << text;
    EXPECT_TRUE(unlabelled.spec().targets.empty());
  }
  const auto regression = open("1,2,3\n4,5,6\n", {.targets = {"2"}}).info().table;
  const CsvSource unknown =
      open("1,3\n", {.header = CsvHeader::no, .schema = regression, .may_lack_labels = true});
  EXPECT_EQ(unknown.spec().inputs, SampleSpec::regression({2}, 1).inputs);
  EXPECT_TRUE(unknown.spec().targets.empty());
  EXPECT_THAT(read(unknown, 0).features(), ElementsAre(1, 3));
}

TEST_F(CsvTest, ReadsQuotedFields) {
  const CsvSource source = open(
      "\"a, b\",\"say \"\"a\"\"\",\"two\nlines\"\n\"1\", \"2\" ,x\n\"3\",4,\"x, "
      "\"\"y\"\"\nz\"\n5,6,\"\"\"\"\n");
  EXPECT_THAT(source.info().feature_names, ElementsAre("a, b", "say \"a\""));
  EXPECT_THAT(source.info().class_names, ElementsAre("\"", "x", "x, \"y\"\nz"));
  EXPECT_THAT(read(source, 0).features(), ElementsAre(1, 2));
  EXPECT_EQ(read(source, 1).label(), 2);
  EXPECT_EQ(
      error("1,\"2\n3\",0\n1,x,0\n"),
      at("line 1, column 2") +
          "expected a number, or a column of words: categorical=2, got \"2\\n3\" (2 fields of "
          "this column are not numbers)");
  EXPECT_EQ(
      error("1,2,\"a\nb\"\n1,y,b\n"),
      at("line 3, column 2") + "expected a number, or a column of words: categorical=2, got \"y\"");
  EXPECT_EQ(
      error("1,2,0\n1,\"2,0\n"),
      at("line 2, column 2") + "expected a quote that closes the field; the file ends without one");
  EXPECT_EQ(error("1,\"2\"3,0\n"),
            at("line 1, column 2") +
                "expected a comma or the end of the line after the closing quote, got 3");
  EXPECT_EQ(error("1,2\"3\",0\n"),
            at("line 1, column 2") +
                "expected quotes around the whole field, and doubled quotes inside it, got 2\"3\"");
}

TEST_F(CsvTest, RejectsOptionsThatDoNotMatch) {
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

TEST_F(CsvTest, RejectsUnknownCategories) {
  std::string text;
  for (std::size_t i = 0; i <= CsvReader::kMaxValues; ++i) text += std::to_string(i) + ",1,0\n";
  EXPECT_EQ(error(text, {.categorical = {"1"}}),
            at("line 10001, column 1") +
                "expected at most 10000 different values in the column 1; \"10000\" is one more");
}

TEST_F(CsvTest, RejectsDuplicateColumns) {
  EXPECT_THAT(error("a,a,label\n1,2,0\n"),
              ::testing::HasSubstr(
                  "expected columns of different names; columns 1 and 2 are both called a"));
  EXPECT_EQ(open(",b,label\n7,2,0\n1,2,1\n").spec().shape(), (std::vector<std::int64_t>{2}))
      << "1 is the name of the first";
}

// The time is not quadratic in the number of columns.
TEST_F(CsvTest, ReadsManyColumnsAndRejectsTooMany) {
  const auto row = [](std::size_t columns) {
    std::string text;
    for (std::size_t i = 0; i < columns; ++i) text += i % 7 == 0 ? "1," : "0,";
    return text + "1\n";
  };
  EXPECT_EQ(open(row(200'000) + row(200'000)).spec().shape(), (std::vector<std::int64_t>{200'000}));
  EXPECT_EQ(error(row(1'000'000)), file_prefix() + "expected at most 1000000 columns, got 1000001");
}

TEST(CsvOptions, AreParsed) {
  const CsvOptions options = table_options(
      "label=kind,columns=a+2,drop=id,categorical=a+b,header=no,unknown=column,like=train.csv,"
      "targets=p+q",
      "");
  EXPECT_EQ(options.label, "kind");
  EXPECT_THAT(options.columns, ElementsAre("a", "2"));
  EXPECT_THAT(options.leave_out, ElementsAre("id"));
  EXPECT_THAT(options.categorical, ElementsAre("a", "b"));
  EXPECT_THAT(options.targets, ElementsAre("p", "q"));
  EXPECT_EQ(options.header, CsvHeader::no);
  EXPECT_TRUE(options.unknown_column);
  EXPECT_EQ(options.like, "train.csv");
  EXPECT_EQ(table_options("header=auto", "").header, CsvHeader::automatic);
  EXPECT_EQ(options.separator, ',');
  EXPECT_EQ(table_options("sep=comma", "").separator, ',');
  EXPECT_EQ(table_options("sep=;,label=kind", "").separator, ';');
  EXPECT_EQ(table_options("sep=tab", "").separator, '\t');
  EXPECT_EQ(table_options("sep=pipe", "").separator, '|');
  const std::string known =
      "[here] expected label=, targets=, columns=, drop=, categorical=, scale=, missing=, header=, "
      "sep=, unknown=, features=, like=, window=, horizon=, steps=, stride=, series= or "
      "label-words= as settings of /dev/null, got ";
  for (const auto& [text, message] :
       {std::pair<const char*, std::string>("", "[here] expected a value before and after"),
        {"label=", "[here] expected label=VALUE; label='' is the empty one, got \"label=\""},
        {"header=maybe", "[here: header] expected auto, yes or no, got \"maybe\""},
        {"unknown=1", "[here: unknown] expected column or error, got \"1\""},
        {"sep=x", "[here: sep] expected comma, semicolon, tab or pipe, got \"x\""},
        {"color=red", known + "\"color\""},
        {"label", known + "\"label\""},
        {"lable=kind", known + "\"lable\" (did you mean label?)"},
        {"label=a,label=b", "[here] expected label= once, got \"label=a\" and \"label=b\""},
        {"label=kind,catgorical=a", known + "\"catgorical\" (did you mean categorical?)"}})
    EXPECT_THAT(input_error_of([&] { table_options(text, "here"); }), StartsWith(message));
  const CsvOptions more =
      table_options("drop=id,sep=;,scale=minmax,missing=-1.5,features=f.json", "");
  EXPECT_THAT(more.leave_out, ElementsAre("id"));
  EXPECT_EQ(more.separator, ';');
  EXPECT_EQ(more.scale, ColumnScale::minmax);
  EXPECT_EQ(more.missing, (MissingValues{MissingValues::Rule::value, -1.5}));
  EXPECT_EQ(more.features, "f.json");
  EXPECT_EQ(input_error_of([] { table_options("scale=standart", "here"); }),
            "[here: scale] expected none, standard or minmax, got \"standart\" (did you mean "
            "standard?)");
  EXPECT_EQ(input_error_of([] { table_options("missing=median", "here"); }),
            "[here: missing] expected error, mean, indicator or a number, got \"median\"");
  EXPECT_EQ(input_error_of([] { table_options("missing=1e300", "here"); }),
            "[here: missing] expected a number that fits a float, got \"1e300\"");
}

}  // namespace
}  // namespace lockstep::data
