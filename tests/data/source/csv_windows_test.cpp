// Windows of table rows: their contents and first rows.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "tests/data/source/csv_fixture.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Six rows: x is 1 to 6, y is 10 x.
constexpr const char* kRows = "x,y\n1,10\n2,20\n3,30\n4,40\n5,50\n6,60\n";

class CsvWindows : public CsvFixture {
 protected:
  CsvSource parsed(const std::string& text, const std::string& options) const {
    return open(text, table_options(options, "csv"));
  }
  /// Another table, read with the schema that a checkpoint of the first would have.
  CsvSource after(const CsvSource& train, const std::string& text, CsvOptions options = {}) const {
    const auto json = nlohmann::json::parse(train.info().table->to_json().dump());
    options.schema =
        std::make_shared<const TableSchema>(TableSchema::from_checkpoint(json, "state.json"));
    return open(text, options);
  }
  /// Features, then targets, of all samples.
  static std::vector<std::vector<float>> samples(const CsvSource& source) {
    std::vector<std::vector<float>> all;
    for (std::int64_t i = 0; i < source.size(); ++i) {
      source.prefetch(i);
      all.push_back(read(source, i).features());
      const auto targets = read(source, i).values();
      all.back().insert(all.back().end(), targets.begin(), targets.end());
    }
    return all;
  }
};

TEST_F(CsvWindows, HaveTheFeaturesOfTheirRowsAndTheTargetsOfLaterOnes) {
  using Samples = std::vector<std::vector<float>>;
  const std::vector<std::tuple<std::string, std::vector<std::int64_t>, Samples>> cases = {
      {"targets=y,window=3",
       {3, 2},
       {{1, 10, 2, 20, 3, 30, 40}, {2, 20, 3, 30, 4, 40, 50}, {3, 30, 4, 40, 5, 50, 60}}},
      {"targets=y,window=3,columns=x", {3, 1}, {{1, 2, 3, 40}, {2, 3, 4, 50}, {3, 4, 5, 60}}},
      {"targets=y,window=2,columns=y,horizon=3", {2, 1}, {{10, 20, 50}, {20, 30, 60}}},
      // The targets of the last row are not features.
      {"targets=y,window=4,horizon=0",
       {4, 1},
       {{1, 2, 3, 4, 40}, {2, 3, 4, 5, 50}, {3, 4, 5, 6, 60}}},
      {"targets=y,window=2,columns=x,steps=3", {2, 1}, {{1, 2, 30, 40, 50}, {2, 3, 40, 50, 60}}},
      {"targets=y+x,window=1,columns=x,steps=2,horizon=4", {1, 1}, {{1, 50, 5, 60, 6}}},
      {"targets=y,window=2,columns=x,stride=3", {2, 1}, {{1, 2, 30}, {4, 5, 60}}},
      {"targets=y,window=5,columns=x", {5, 1}, {{1, 2, 3, 4, 5, 60}}},
  };
  for (const auto& [options, shape, expected] : cases) {
    const CsvSource source = parsed(kRows, options);
    EXPECT_EQ(source.spec().shape(), shape) << options;
    EXPECT_EQ(source.size(), std::ssize(expected)) << options;
    EXPECT_EQ(samples(source), expected) << options;
  }
}

TEST_F(CsvWindows, NameTheColumnsOfARowAndTheStepsOfTheTargets) {
  const CsvSource one = parsed(kRows, "targets=y,window=3");
  EXPECT_THAT(one.info().feature_names, ElementsAre("x", "y"));
  EXPECT_THAT(one.info().target_names, ElementsAre("y"));
  EXPECT_EQ(one.info().preparation, ", windows of 3 rows");
  const CsvSource several = parsed(kRows, "targets=y+x,window=1,steps=2,horizon=2,stride=2");
  EXPECT_THAT(several.info().target_names, ElementsAre("y+2", "x+2", "y+3", "x+3"));
  EXPECT_EQ(several.info().description, path_.string() + ", windows of 1 row at every 2 rows");
}

TEST_F(CsvWindows, AreScaledByTheRowsOfTheTable) {
  const CsvSource source =
      open("x\n1\n3\n1\n3\n", {.targets = {"x"}, .scale = ColumnScale::standard, .window = 2});
  EXPECT_THAT(samples(source), ElementsAre(ElementsAre(-1, 1, 1), ElementsAre(1, -1, 3)));
  EXPECT_THAT(samples(after(source, "x\n5\n7\n9\n", {.scale = ColumnScale::standard})),
              ElementsAre(ElementsAre(3, 5, 9)));
}

TEST_F(CsvWindows, HaveTheClassOfALaterRow) {
  const std::string text = "x,c,kind\n1,a,no\n2,b,yes\n3,a,no\n4,b,yes\n";
  const CsvSource source = parsed(text, "label=kind,window=2,horizon=0,categorical=c");
  EXPECT_EQ(source.spec(), SampleSpec::classification({2, 3}, 2));
  EXPECT_THAT(read(source, 0).features(), ElementsAre(1, 1, 0, 2, 0, 1));
  for (const auto& [record, label] : {std::pair(0, 1), {1, 0}, {2, 1}})
    EXPECT_EQ(read(source, record).label(), label);
  EXPECT_EQ(read(parsed(text, "label=kind,window=2,drop=c"), 0).label(), 0) << "of row 3";
}

TEST_F(CsvWindows, HaveOneIndexForEachRow) {
  const auto features = directory_ / "features.json";
  write_bytes(features, R"({"features": [{"column": "c", "kind": "categorical", "output": "index",
                                          "vocabulary": ["a", "b"]}]})");
  const CsvSource source =
      open("x,c,y\n1,a,5\n2,b,6\n3,b,7\n", {.targets = {"y"}, .features = features, .window = 2});
  ASSERT_EQ(source.spec().inputs.size(), 2U);
  EXPECT_EQ(source.spec().inputs[1].shape, std::vector<std::int64_t>{2});
  const ReadSample sample = read(source, 0);
  EXPECT_THAT(sample.features(), ElementsAre(1, 5, 2, 6));
  EXPECT_THAT(sample.memory.inputs[1].as<std::int32_t>(), ElementsAre(0, 1));
}

TEST_F(CsvWindows, DoNotCrossSeries) {
  // The rows of a series need not be adjacent: a at 1, 3, 4, 6; b at 2, 7, 8; c at 5.
  const CsvSource source =
      parsed("shop,x\na,1\nb,2\na,3\na,4\nc,5\na,6\nb,7\nb,8\n", "targets=x,window=2,series=shop");
  EXPECT_THAT(source.info().feature_names, ElementsAre("x"));
  EXPECT_THAT(samples(source),
              ElementsAre(ElementsAre(1, 3, 4), ElementsAre(3, 4, 6), ElementsAre(2, 7, 8)));
  EXPECT_EQ(source.info().description,
            path_.string() + ", 1 of 3 series too short, windows of 2 rows");
  const CsvSource strided =
      parsed("x,s\n1,1\n2,1\n3,1\n4,1\n5,2\n6,2\n7,2\n", "targets=x,window=1,series=s,stride=2");
  EXPECT_THAT(samples(strided),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4), ElementsAre(5, 6)));
  EXPECT_EQ(data_error_of([&] { parsed("s,x\na,1\n,2\n", "targets=x,window=1,series=s"); }),
            "[" + path_.string() + ": line 3, column 1] expected the name of a series, got \"\"");
}

TEST_F(CsvWindows, OfAnotherTableAreThoseOfTheTraining) {
  const CsvSource train = parsed("s,x\na,1\na,2\na,3\n", "targets=x,window=2,series=s,stride=2");
  const std::string more = "x,other,s\n1,0,a\n2,0,b\n3,0,b\n4,0,b\n5,0,b\n";
  EXPECT_THAT(samples(after(train, more)), ElementsAre(ElementsAre(2, 3, 4)));
  EXPECT_THAT(samples(after(train, more, {.stride = 1})),
              ElementsAre(ElementsAre(2, 3, 4), ElementsAre(3, 4, 5)));
  EXPECT_TRUE(after(train, more, {.stride = 1}).info().table->agrees_with(*train.info().table));
  const auto refused = [&](const std::string& options) {
    return input_error_of([&] { after(train, more, table_options(options, "csv")); });
  };
  EXPECT_EQ(refused("window=3"),
            file_prefix() + "expected window=2, as in the training data, got window=3");
  EXPECT_EQ(refused("horizon=2"),
            file_prefix() + "expected horizon=1, as in the training data, got horizon=2");
  EXPECT_EQ(refused("steps=2"),
            file_prefix() + "expected steps=1, as in the training data, got steps=2");
  EXPECT_EQ(refused("series=other"),
            file_prefix() + "expected series=s, as in the training data, got series=other");
  EXPECT_THAT(data_error_of([&] { after(train, "x\n1\n2\n3\n"); }),
              HasSubstr("expected the column s, the series of the training data"));
  const CsvSource rows = parsed(kRows, "targets=y");
  EXPECT_EQ(input_error_of([&] { after(rows, kRows, {.window = 2}); }),
            file_prefix() + "expected no windows of rows, as in the training data, got window=2");
  EXPECT_EQ(input_error_of([&] { after(rows, kRows, {.stride = 2}); }),
            file_prefix() + "expected no windows of rows, as in the training data, got stride=2");
  EXPECT_FALSE(rows.info().table->agrees_with(*parsed(kRows, "targets=y,window=2").info().table));
}

TEST_F(CsvWindows, ForPredictionsEndAtTheLastRow) {
  const CsvSource train = parsed(kRows, "targets=y,window=2,steps=2");
  const CsvSource source = after(train, "x,y\n7,70\n8,80\n9,90\n", {.may_lack_labels = true});
  EXPECT_TRUE(source.spec().targets.empty());
  EXPECT_THAT(samples(source), ElementsAre(ElementsAre(7, 70, 8, 80), ElementsAre(8, 80, 9, 90)));
  EXPECT_THAT(source.info().target_names, ElementsAre("y+1", "y+2"));
  const CsvSource only_x = parsed(kRows, "targets=y,window=2,columns=x");
  EXPECT_EQ(after(only_x, "x\n7\n8\n", {.may_lack_labels = true}).size(), 1) << "y is not read";
}

TEST_F(CsvWindows, RequireRowsAndOptionsThatFit) {
  const auto rows_error = [&](const std::string& options) {
    return data_error_of([&] { parsed(kRows, options); });
  };
  EXPECT_EQ(
      rows_error("targets=y,window=6"),
      file_prefix() + "expected at least 7 rows for window=6, horizon=1 and steps=1; there are 6");
  EXPECT_EQ(
      rows_error("targets=y,window=2,horizon=3,steps=3"),
      file_prefix() + "expected at least 7 rows for window=2, horizon=3 and steps=3; there are 6");
  EXPECT_EQ(data_error_of([&] { parsed("s,x\na,1\nb,2\n", "targets=x,window=1,series=s"); }),
            file_prefix() +
                "expected at least 2 rows of a series for window=1, horizon=1 and steps=1, "
                "got 2 series with fewer");
  const auto refused = [&](const std::string& options) {
    return input_error_of([&] { parsed(kRows, options); });
  };
  EXPECT_THAT(refused("targets=z,window=2"), HasSubstr("expected targets= with columns"));
  EXPECT_THAT(refused("targets=y,window=2,series=z"), HasSubstr("expected series= with columns"));
  EXPECT_THAT(refused("targets=y,window=2,series=y"), HasSubstr("expected one meaning for"));
  EXPECT_THAT(refused("targets=y,window=2,horizon=0,columns=y"),
              HasSubstr("expected one meaning for the column y, got targets= and columns="));
  EXPECT_EQ(refused("label=y,window=2,steps=2"),
            file_prefix() + "expected targets=COLUMNS with steps=, got the label y");
  for (const char* option : {"horizon=2", "steps=2", "stride=2", "series=x"})
    EXPECT_EQ(refused(std::string("targets=y,") + option),
              file_prefix() +
                  "expected window=ROWS with horizon=, steps=, stride= or series=; there is none");
  for (const auto& [option, least] : {std::pair("window=0", 1),
                                      {"window=-3", 1},
                                      {"window=1048577", 1},
                                      {"window=2.5", 1},
                                      {"horizon=-1", 0},
                                      {"steps=0", 1},
                                      {"stride=0", 1}}) {
    const std::string text = option;
    EXPECT_EQ(refused(text),
              fmt::format("[csv] expected {} to be a whole number from {} to 1048576, got \"{}\"",
                          text.substr(0, text.find('=')), least, text));
  }
}

TEST_F(CsvWindows, AreFoundByVerification) {
  std::vector<std::string> problems;
  write_bytes(path_, "s,x\na,1\na,?\n,3\n");
  EXPECT_EQ(CsvSource::find_problems(path_, table_options("targets=x,window=4,series=s", "csv"),
                                     [&](const Error& error) { problems.push_back(error.what()); }),
            3);
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_THAT(problems[0], HasSubstr("line 3, column 2] expected a number"));
  EXPECT_THAT(problems[1], HasSubstr("line 4, column 1] expected the name of a series"));
  EXPECT_THAT(problems[2], HasSubstr("expected at least 5 rows of a series for window=4"));
}

TEST_F(CsvWindows, OfACheckpointAreCheckedBeforeTheyAreUsed) {
  const nlohmann::json good =
      parsed("s,x\na,1\na,2\na,3\n", "targets=x,window=2,series=s").info().table->to_json();
  EXPECT_EQ(TableSchema::from_checkpoint(good, "state.json").to_json(), good);
  const auto refused = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad["window"][key] = value;
    return error_of(ErrorCategory::checkpoint,
                    [&] { TableSchema::from_checkpoint(bad, "state.json"); });
  };
  for (const char* key : {"rows", "steps", "stride"})
    for (const nlohmann::json& value :
         {nlohmann::json(0), nlohmann::json(1e30), nlohmann::json(-1), nlohmann::json("2")})
      EXPECT_THAT(refused(key, value),
                  HasSubstr(fmt::format("expected \"{}\" to be a whole number from 1", key)));
  EXPECT_THAT(refused("horizon", -1),
              HasSubstr("expected \"horizon\" to be a whole number from 0"));
  EXPECT_THAT(refused("series", 3), HasSubstr("expected \"series\" to be text"));
  EXPECT_THAT(refused("rowz", 3), HasSubstr("of a window, got \"rowz\" (did you mean rows?)"));
  nlohmann::json many = good;
  many["targets"] = {"x", "y"};
  many["window"]["steps"] = 500'001;
  EXPECT_THAT(error_of(ErrorCategory::checkpoint,
                       [&] { TableSchema::from_checkpoint(many, "state.json"); }),
              HasSubstr("expected at most 1000000 targets"));
  nlohmann::json labelled = good;
  labelled.erase("targets");
  labelled["label"] = "x";
  labelled["window"]["steps"] = 2;
  EXPECT_THAT(error_of(ErrorCategory::checkpoint,
                       [&] { TableSchema::from_checkpoint(labelled, "state.json"); }),
              HasSubstr("expected targets with several steps"));
}

TEST_F(CsvWindows, AreOpenedByTheTextOfTheData) {
  write_bytes(path_, kRows);
  const Dataset data =
      open_data("csv:" + path_.string() + ":targets=y,window=3,columns=x,scale=none");
  EXPECT_EQ(data.size(), 3);
  EXPECT_EQ(data.spec(), SampleSpec::regression({3, 1}, 1));
  const auto labels = open_data("csv:" + path_.string() + ":window=2,horizon=0,label=y");
  EXPECT_EQ(labels.size(), 5);
}

}  // namespace
}  // namespace lockstep::inline v0::data
