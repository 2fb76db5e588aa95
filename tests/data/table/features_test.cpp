// Missing values, and features described by a file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "lockstep/data/table/transform.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// As a float.
float log1p_of(double number) { return static_cast<float>(std::log1p(number)); }

class FeaturesTest : public ::testing::Test {
 protected:
  CsvSource open(const std::string& text, const CsvOptions& options) const {
    write_bytes(path_, text);
    return CsvSource(path_, options);
  }
  /// A table read with the features file `json`.
  CsvSource described(const std::string& text, const std::string& json) const {
    write_bytes(file_, json);
    return open(text, {.features = file_});
  }
  /// Another table, read with the schema that a checkpoint of the first would have.
  CsvSource after(const CsvSource& train, const std::string& text) const {
    const auto json = nlohmann::json::parse(train.info().table->to_json().dump());
    return open(text, {.schema = std::make_shared<const TableSchema>(
                           TableSchema::from_checkpoint(json, "state.json"))});
  }

  /// The number of a category that is a separate input.
  static std::int32_t index_of(const CsvSource& source, std::int64_t record, std::size_t input) {
    return read(source, record).memory.inputs.at(input).as<std::int32_t>()[0];
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "table.csv";
  const std::filesystem::path file_ = directory_ / "features.json";
};

TEST_F(FeaturesTest, MissingNumbersAreFilledIn) {
  const std::string text = "age,n,k\n1,NA,0\n,2,1\n4,4,1\n";
  const auto rule = [&](const std::string& missing, ColumnScale scale) {
    return open(text, {.scale = scale, .missing = MissingValues::parse(missing)});
  };
  // Mean and deviation are those of the numbers that are not missing.
  const CsvSource mean = rule("mean", ColumnScale::none);
  EXPECT_THAT(read(mean, 0).features(), ElementsAre(1, 3));
  EXPECT_THAT(read(mean, 1).features(), ElementsAre(2.5, 2));
  EXPECT_THAT(read(after(mean, "age,n,k\n,,1\n"), 0).features(), ElementsAre(2.5, 3));
  EXPECT_THAT(read(rule("mean", ColumnScale::standard), 1).features(), ElementsAre(0, -1));
  EXPECT_THAT(read(rule("7", ColumnScale::none), 1).features(), ElementsAre(7, 2));
  const CsvSource indicator = rule("indicator", ColumnScale::standard);
  EXPECT_THAT(indicator.info().feature_names, ElementsAre("age", "age missing", "n", "n missing"));
  EXPECT_THAT(read(indicator, 0).features(), ElementsAre(-1, 0, 0, 1));
  EXPECT_THAT(read(indicator, 1).features(), ElementsAre(0, 1, -1, 0));
  EXPECT_THAT(read(after(indicator, "age,n,k\n,6,1\n"), 0).features(), ElementsAre(0, 1, 3, 0));
  // No indicator for a column without missing values in training: they are filled in.
  const CsvSource whole = open("age,k\n1,0\n3,1\n", {.missing = MissingValues::parse("indicator")});
  EXPECT_THAT(read(after(whole, "age,k\n?,1\n"), 0).features(), ElementsAre(0));
  EXPECT_EQ(data_error_of([&] {
              open("a,b,k\n1,,0\n2,,1\n", {.columns = {"a", "b"}});
            }),
            "[" + path_.string() + "] expected numbers in the column b; all are missing");
}

TEST_F(FeaturesTest, AreDescribedByAFile) {
  const CsvSource train = described(
      "age,made,color,tags,x,id,label\n15,2026-11-24,red,a|b,1,7,0\n30,2026-11-23T12:00:00,blue,c,"
      "3,8,1\n70,2020-02-29,red,,5,9,1\n",
      R"({"drop": ["id"], "features": [
        {"column": "age", "kind": "bucketized", "boundaries": [18, 65]},
        {"column": "age", "scale": "none", "clip": [20, 60]},
        {"column": "made", "date": "days", "scale": "none"},
        {"column": "made", "date": "weekday", "scale": "minmax"},
        {"column": "color", "kind": "categorical", "vocabulary": ["red", "blue"]},
        {"column": "tags", "kind": "categorical", "output": "multi-hot"},
        {"column": "color", "kind": "categorical", "output": "index", "unknown": "column"},
        {"column": "age", "scale": "none", "log": true}]})");
  EXPECT_THAT(train.info().feature_names,
              ElementsAre("age<18", "18<=age<65", "age>=65", "age", "made days", "made weekday",
                          "color=red", "color=blue", "tags=a", "tags=b", "tags=c", "age", "x"));
  EXPECT_EQ(train.spec().inputs.at(1),
            (TensorSpec{.name = "color", .type = ElementType::int32, .classes = 3}));
  EXPECT_THAT(read(train, 0).features(),
              ElementsAre(1, 0, 0, 20, 20781, 0.2f, 1, 0, 1, 1, 0, log1p_of(15),
                          ::testing::FloatEq(-1.2247449f)));
  EXPECT_THAT(read(train, 1).features(),
              ElementsAre(0, 1, 0, 30, 20780.5, 0, 0, 1, 0, 0, 1, log1p_of(30), 0));
  EXPECT_THAT(read(train, 2).features(), ElementsAre(0, 0, 1, 60, 18321, 1, 1, 0, 0, 0, 0,
                                                     log1p_of(70), ::testing::FloatEq(1.2247449f)));
  EXPECT_EQ(index_of(train, 0, 1), 1);
  EXPECT_EQ(index_of(train, 1, 1), 0);
  const CsvSource source = described("x,k\n1,0\n,1\n", R"({"features": [{"column": "x",
      "missing": "indicator", "offset": 2, "divisor": 4, "fill": 6, "indicator": true}]})");
  EXPECT_THAT(read(source, 0).features(), ElementsAre(-0.25, 0));
  EXPECT_THAT(read(source, 1).features(), ElementsAre(1, 1));
  const CsvSource untagged = described("x,tags,k\n1,,0\n3,,1\n", R"({"features": [{"column": "x"},
      {"column": "tags", "kind": "categorical", "output": "multi-hot"}]})");
  EXPECT_THAT(read(untagged, 1).features(), ElementsAre(1));
  const CsvSource test = after(train, "label,x,tags,color,made,age\n0,3,c|a,red,2026-11-23,18\n");
  EXPECT_THAT(read(test, 0).features(),
              ElementsAre(0, 1, 0, 20, 20780, 0, 1, 0, 1, 0, 1, log1p_of(18), 0));
}

TEST_F(FeaturesTest, HashAndCrossWords) {
  const std::string json = R"({"label": "k", "features": [
      {"column": "a", "kind": "hashed", "buckets": 5},
      {"columns": ["a", "b"], "kind": "crossed", "buckets": 7, "output": "index"}]})";
  const CsvSource source = described("a,k,b\nred,0,x\nblue,1,y\nred,1,x\n", json);
  EXPECT_EQ(to_string(source.spec()), "features [5] and a x b (7 classes) with 2 classes");
  EXPECT_EQ(read(source, 0).features(), read(source, 2).features());
  EXPECT_EQ(index_of(source, 0, 1), index_of(source, 2, 1));
  EXPECT_EQ(read(after(source, "k,b,a\n0,y,green\n"), 0).features().size(), 5u)
      << "no word is unknown";
  // Checkpoints rely on these numbers.
  EXPECT_EQ(hash_bucket("red", 1000), 425);
  EXPECT_EQ(hash_bucket("", 1000), 458);
  EXPECT_EQ(index_of(source, 0, 1), hash_bucket(std::string("red") + '\x1f' + 'x', 7));
}

TEST_F(FeaturesTest, MayBeIndicesAlone) {
  const std::string json = R"({"label": "k", "features": [
      {"column": "a", "kind": "categorical", "output": "index"},
      {"column": "b", "kind": "hashed", "buckets": 9, "output": "index"}]})";
  const CsvSource source = described("a,b,k\nx,7,0\ny,8,1\n", json);
  const Dataset dataset = Dataset::from_csv(path_, {.features = file_});  // checks the spec
  EXPECT_EQ(to_string(dataset.spec()), "a (2 classes) and b (9 classes) with 2 classes");
  EXPECT_THAT(source.info().feature_names, ::testing::IsEmpty());
  EXPECT_EQ(index_of(source, 1, 0), 1);
  EXPECT_EQ(index_of(source, 1, 1), hash_bucket("8", 9));
  write_bytes(file_, R"({"label": "k", "features": [
      {"column": "a", "kind": "categorical", "output": "index"},
      {"column": "a", "kind": "hashed", "buckets": 9, "output": "index"}]})");
  EXPECT_THAT(input_error_of([&] { Dataset::from_csv(path_, {.features = file_}); }),
              HasSubstr("two are called \"a\""));
}

TEST_F(FeaturesTest, DatesHaveTheUsualForms) {
  EXPECT_EQ(date_number("1970-01-01", DatePart::days), 0);
  EXPECT_EQ(date_number("2000-02-29T06:00", DatePart::days), 11016.25);
  EXPECT_EQ(date_number("2000-02-29 06:00:00Z", DatePart::year), 2000);
  EXPECT_EQ(date_number("2000-02-29", DatePart::month), 2);
  EXPECT_EQ(date_number("2000-02-29", DatePart::weekday), 1);
  EXPECT_EQ(date_number("29.02.2000", DatePart::days), 11016);
  EXPECT_EQ(date_number("1.2.1970 12:00", DatePart::days), 31.5);
  EXPECT_EQ(date_number("1970/02/01", DatePart::days), 31);
  for (const char* field :
       {"", "2001-02-29", "2000-2-29", "29.02.00", "2000-02-29X06:00", "2000-02-29T6", "2000-13-01",
        "2000-02-2", "2000-02/02", "01/02/2000", "1.2", "..2000", "1..2000", "123.2.2000"})
    EXPECT_EQ(date_number(field, DatePart::days), std::nullopt) << field;
  const std::string json = R"({"features": [{"column": "made", "date": "year"}]})";
  EXPECT_EQ(data_error_of([&] { described("made,k\n2026-11-24,0\n24.11.26,1\n", json); }),
            "[" + path_.string() +
                ": line 3, column 1] expected a date such as 2026-11-28, 2026-11-28 12:30:00 or "
                "28.11.2026, got \"24.11.26\"");
}

TEST_F(FeaturesTest, RejectInvalidDescriptions) {
  const std::string where = "[" + file_.string() + "] expected the features of a table; ";
  const auto error = [&](const std::string& json) {
    return input_error_of([&] { described("age,color,k\n1,red,0\n2,blue,1\n", json); });
  };
  const auto feature = [&](const std::string& json) {
    return error(R"({"features": [{"column": "color", "kind": "hashed", "buckets": 2}, )" + json +
                 "]}");
  };
  EXPECT_EQ(error("[]"), where + "expected an object, got an array of 0");
  EXPECT_THAT(error("{\"feature\": []}"), HasSubstr("got \"feature\" (did you mean features?)"));
  const std::string second = where + "feature 2: ";
  EXPECT_EQ(feature(R"({"kind": "numeric"})"), second + "expected \"column\"");
  EXPECT_THAT(feature(R"({"column": "age", "kind": "bucket"})"),
              HasSubstr("feature 2: expected numeric, bucketized, categorical, hashed or crossed "
                        "as \"kind\", got \"bucket\""));
  EXPECT_THAT(
      feature(R"({"column": "age", "buckets": 3})"),
      HasSubstr("feature 2: expected kind, column, date, missing, clip, log, scale, offset, "
                "divisor, fill, indicator of a numeric feature, got \"buckets\""));
  for (const std::string member : {"clip\": [null, 1e300]", "missing\": 1e300", "offset\": -4e38"})
    EXPECT_THAT(feature(R"({"column": "age", ")" + member + "}"),
                HasSubstr("\" to be a number that fits a float, got "))
        << member;
  EXPECT_EQ(error(R"({"features": [{"column": "age", "kind": "hashed", "buckets": 1000000},
                                   {"column": "color", "kind": "hashed", "buckets": 2}]})"),
            where + "feature 2: expected at most 1000000 features, got 1000002");
  EXPECT_EQ(feature(R"({"column": "age", "clip": [2, 1]})"),
            second + "expected \"clip\" to be [lowest, highest]");
  EXPECT_EQ(feature(R"({"column": "age", "missing": "mean", "offset": 1, "divisor": 2})"),
            second + "expected \"fill\", the number instead of missing ones, with \"offset\"");
  EXPECT_EQ(
      feature(R"({"column": "age", "missing": "indicator", "offset": 1, "divisor": 2, "fill": 3})"),
      second +
          "expected \"fill\", the number instead of missing ones, and \"indicator\", true or "
          "false, with \"offset\"");
  EXPECT_EQ(feature(R"({"column": "age", "indicator": true})"),
            second + "expected \"offset\" and \"divisor\" with \"fill\", \"indicator\"");
  EXPECT_EQ(feature(R"({"column": "age", "log": 1})"),
            second + "expected \"log\" to be true or false, got 1");
  EXPECT_EQ(feature(R"({"column": "age", "kind": "bucketized", "boundaries": [2, 2]})"),
            second + "expected \"boundaries\" in ascending order");
  EXPECT_EQ(feature(R"({"column": "age", "kind": "hashed", "buckets": 1e6})"),
            second + "expected \"buckets\" to be a whole number from 1 to 1000000, got 1000000.0");
  EXPECT_EQ(feature(R"({"columns": ["age"], "kind": "crossed", "buckets": 2})"),
            second + "expected \"columns\" with at least two columns");
  EXPECT_EQ(feature(R"({"column": "size"})"),
            "[" + path_.string() +
                "] expected features= with columns of the table: age, color, k; or their numbers "
                "from 1, got \"size\"");
  EXPECT_EQ(
      feature(R"({"column": "k"})"),
      "[" + path_.string() + "] expected one meaning for the column k, got label= and features=");
  for (const std::string kind : {"", R"(, "kind": "bucketized", "boundaries": [1])"})
    for (const char* age : {"-1", "-2"})
      EXPECT_THAT(
          data_error_of([&] {
            described(fmt::format("age,k\n{},0\n2,1\n", age),
                      R"({"features": [{"column": "age", "log": true)" + kind + "}]}");
          }),
          HasSubstr(fmt::format(
              "line 2, column 1] expected a number above -1, for log(1 + x), got \"{}\"", age)));
}

TEST_F(FeaturesTest, RejectMoreThanFitsInMemory) {
  std::string text = "x,k\n";
  for (int row = 0; row < 1'000'000; ++row) text += "1,0\n";
  std::string features = R"({"column": "x"})";
  for (int i = 1; i < 20'000; ++i) features += R"(, {"column": "x"})";
  write_bytes(file_, "{\"features\": [" + features + "]}");
  EXPECT_THAT(data_error_of([&] { open(text, {.features = file_}); }),
              HasSubstr("] expected 223.5 GiB of free memory for 1000002 rows of 20000 numbers; "));
}

TEST_F(FeaturesTest, OfOpenDataAreInTheTextOrTheOptions) {
  write_bytes(path_, "a,k\n1,0\n3,1\n");
  write_bytes(file_, R"({"features": [{"column": "a", "scale": "none"}]})");
  DataSpecOptions options;
  options.features = file_;
  EXPECT_EQ(read(open_data("csv:" + path_.string(), options).source(), 1).features().at(0), 3);
  EXPECT_EQ(read(open_data("csv:" + path_.string() + ":features=" + file_.string()).source(), 1)
                .features()
                .at(0),
            3);
  EXPECT_EQ(read(open_data("csv:" + path_.string()).source(), 1).features().at(0), 1);
  options.part = "test";
  options.features.clear();
  EXPECT_THAT(input_error_of([&] { open_data("csv:" + path_.string(), options); }),
              HasSubstr("expected like=FILE, the training table"));
  options.scales_tables = false;
  EXPECT_EQ(read(open_data("csv:" + path_.string(), options).source(), 1).features().at(0), 3);
}

}  // namespace
}  // namespace lockstep::inline v0::data
