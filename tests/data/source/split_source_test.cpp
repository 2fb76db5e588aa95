#include "lockstep/data/source/split_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/data/dataset.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/data/table/schema.h"
#include "tests/data/counting_source.h"
#include "tests/data/source/csv_fixture.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::array kParts = {SplitPart::training, SplitPart::validation, SplitPart::test};
constexpr RecordSplit kSplit = {.validation = 0.2, .test = 0.1, .seed = 9};

TEST(SplitSource, HasEachRecordInOnePart) {
  const Dataset all = Dataset::from_source(std::make_shared<CountingSource>(100));
  std::multiset<float> seen;
  std::vector<std::int64_t> sizes;
  for (const SplitPart part : kParts) {
    const Dataset dataset = all.split({kSplit, part});
    sizes.push_back(dataset.size());
    std::map<std::int32_t, std::int64_t> classes;
    for (std::int64_t id = 0; id < dataset.size(); ++id) {
      const ReadSample sample = read(dataset.source(), id);
      seen.insert(sample.features()[0]);
      ++classes[sample.label()];
    }
    for (const auto& [label, records] : classes) EXPECT_EQ(records * 5, dataset.size()) << label;
    EXPECT_EQ(dataset.source().info().split->text(),
              "70 training, 20 validation, 10 test records, stratified by label");
  }
  EXPECT_THAT(sizes, ElementsAre(70, 20, 10));
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(std::set<float>(seen.begin(), seen.end()).size(), 100u);
  EXPECT_EQ(all.split({kSplit, SplitPart::test}).preparation(),
            ", the test part of a split (validation 0.2, test 0.1)");
}

TEST(SplitSource, DividesRegressionTargetsAlike) {
  const Dataset all = Dataset::from_source(std::make_shared<CountingSource>(30, 1));
  EXPECT_EQ(all.split({kSplit, SplitPart::validation}).source().info().split->text(),
            "21 training, 6 validation, 3 test records");
}

TEST(SplitSource, ReadsClassesOfImagesFromTheirFolders) {
  const TemporaryDirectory directory;
  for (const std::string kind : {"cat", "dog"}) {
    std::filesystem::create_directories(directory / kind);
    for (int i = 0; i < 10; ++i)
      write_bytes(directory / kind / (std::to_string(i) + ".png"), "not read to be split");
  }
  const auto source =
      std::make_shared<ImageFolderSource>(directory.path(), std::vector<std::int64_t>{2, 2, 3});
  EXPECT_EQ(source->class_of(0), 0);
  EXPECT_EQ(source->class_of(19), 1);
  const SplitSource part(source, {kSplit, SplitPart::training});
  EXPECT_EQ(part.info().split->text(),
            "14 training, 4 validation, 2 test records, stratified by label");
}

TEST(SplitSource, RefusesRecordFiles) {
  const TemporaryDirectory directory;
  write_records(directory / "a.tfrecord", std::vector<std::string>(10, image_record(0, 4, 1)));
  DataSpecOptions options = {.split = SplitSelection{kSplit, SplitPart::training}};
  options.tfrecord.input_shape = {2, 2, 1};
  EXPECT_THAT(input_error_of([&] { open_data((directory / "a.tfrecord").string(), options); }),
              HasSubstr("lockstep data convert --part writes the parts of TFRecord files"));
}

TEST(SplitSource, RefusesTextsThatOverlap) {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.txt", std::string(1000, 'a'));
  const DataSpecOptions options = {.split = SplitSelection{kSplit, SplitPart::training}};
  const std::string spec = "text:" + (directory / "a.txt").string() + ":length=10";
  EXPECT_EQ(open_data(spec, options).size(), 70);
  EXPECT_THAT(input_error_of([&] { open_data(spec + ",stride=5", options); }),
              HasSubstr("got stride= below length="));
}

/// A table, and parts of it.
class CsvSplit : public CsvFixture {
 protected:
  CsvSource part(SplitPart part, CsvOptions options = {}) const {
    options.split = SplitSelection{kSplit, part};
    return CsvSource(path_, options);
  }
  /// The parts, of which the others are read as separate files would be.
  std::vector<CsvSource> parts(const CsvOptions& options) const {
    std::vector<CsvSource> all;
    all.push_back(part(SplitPart::training, options));
    CsvOptions known = options;
    known.schema = all[0].info().table;
    for (const SplitPart held_out : {SplitPart::validation, SplitPart::test})
      all.push_back(part(held_out, known));
    return all;
  }
};

TEST_F(CsvSplit, LearnsFromTheTrainingPartAlone) {
  std::string text = "x,word,kind\n";
  for (int i = 0; i < 40; ++i)
    text += std::to_string(i) + ".25," + (i % 2 == 0 ? "even" : "odd") +
            (i % 4 < 2 ? ",low\n" : ",high\n");
  write_bytes(path_, text);
  const auto all = parts({.categorical = {"word"}});
  std::set<double> seen;
  double sum = 0;
  for (const CsvSource& part : all) {
    const TableFeature& x = part.info().table->features[0];
    for (std::int64_t id = 0; id < part.size(); ++id) {
      const double value =
          std::floor(static_cast<double>(read(part, id).features()[0]) * x.divisor + x.offset);
      seen.insert(value);
      if (&part == &all[0]) sum += value;
      EXPECT_EQ(read(part, id).label(), static_cast<int>(value) % 4 < 2 ? 1 : 0);
    }
    EXPECT_EQ(part.info().split->text(),
              "28 training, 8 validation, 4 test records, stratified by kind");
    EXPECT_EQ(x.offset, all[0].info().table->features[0].offset);
  }
  EXPECT_EQ(seen.size(), 40u) << "each row in one part";
  EXPECT_DOUBLE_EQ(all[0].info().table->features[0].offset, sum / 28 + 0.25);
  EXPECT_EQ(all[0].info().table->counts.rows, 28);
  EXPECT_EQ(all[1].info().table->counts.rows, 8);
  EXPECT_EQ(all[1].info().table->counts.classes, (std::vector<std::int64_t>{4, 4}));
}

TEST_F(CsvSplit, TreatsWordsOfHeldOutRowsAsThoseOfAnotherFile) {
  std::string text = "word,x,kind\n";
  for (int i = 0; i < 40; ++i)
    text += "word" + std::to_string(i) + "," + std::to_string(i % 7) + "," + std::to_string(i % 2) +
            "\n";
  write_bytes(path_, text);
  CsvOptions options = {.categorical = {"word"}};
  EXPECT_THAT(data_error_of([&] { parts(options); }),
              HasSubstr("expected a value that the column word of the training data has"));
  options.unknown_column = true;
  const auto all = parts(options);
  EXPECT_EQ(all[0].info().table->features[0].vocabulary.size(), 28u);
  EXPECT_EQ(all[1].info().table->counts.unknown[0], 8);
}

TEST_F(CsvSplit, NamesTheLineOfAFieldInAnyPart) {
  std::string text = "x,kind\n";
  for (int i = 0; i < 40; ++i) text += (i == 30 ? "abc" : "1") + std::string(",0\n");
  write_bytes(path_, text);
  int errors = 0;
  for (const SplitPart one : kParts) try {
      part(one);
    } catch (const Error& error) {
      ++errors;
      EXPECT_THAT(error.what(), HasSubstr("line 32, column 1"));
    }
  EXPECT_EQ(errors, 1) << "of the part that has the row";
}

TEST_F(CsvSplit, RefusesWindows) {
  write_bytes(path_, "x,y\n1,2\n3,4\n5,6\n7,8\n9,9\n");
  EXPECT_THAT(input_error_of([&] { part(SplitPart::training, {.targets = {"y"}, .window = 2}); }),
              HasSubstr("windows of a random split would share rows"));
}

}  // namespace
}  // namespace lockstep::inline v0::data
