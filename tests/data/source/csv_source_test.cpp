// What is read from the rows of a table, with its own schema and with that of another table.
#include "lockstep/data/source/csv/csv_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/sample/sample_spec.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/table/schema.h"
#include "tests/data/source/csv_fixture.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class CsvTest : public CsvFixture {};

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

TEST_F(CsvTest, PrefersAnExistingFileToOptions) {
  const auto file = directory_ / "what?.csv";
  write_bytes(file, "1,2,0\n");
  EXPECT_EQ(CsvSpec::parse(file.string(), "csv").file, file);
  EXPECT_EQ(CsvSpec::parse(file.string() + ":label=1", "csv").options.label, "1");
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
      "[here] expected label=, targets=, columns=, drop=, categorical=, scale=, keep=, missing=, "
      "header=, sep=, encoding=, unknown=, features=, like=, window=, horizon=, steps=, stride=, "
      "series= or "
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
}  // namespace lockstep::inline v0::data
