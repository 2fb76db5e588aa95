#include "lockstep/data/dataset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/data/counting_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;

TEST(Dataset, MustBeBatchedAndNotEmptyToStream) {
  const Dataset unbatched = Dataset::from_source(std::make_shared<CountingSource>(10));
  EXPECT_EQ(input_error_of([&] { unbatched.stream({}); }),
            "[stream] expected a data set grouped into batches; call batch() first");
  EXPECT_EQ(unbatched.steps_per_epoch(), 0);
  EXPECT_EQ(data_error_of([] { counting(0, 5).stream({}); }),
            "[counting] expected at least one record; the data set is empty");
  EXPECT_EQ(input_error_of([&] { unbatched.batch(0); }),
            "[batch] expected a global batch of at least 1 sample, got 0");
}

TEST(Dataset, IsUnchangedByOperations) {
  const Dataset plain = counting(10, 4);
  const Dataset shuffled = plain.shuffle();
  EXPECT_THAT(ids_of(plain, epochs(plain, 1))[0], ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(shuffled.steps_per_epoch(), 3);
  EXPECT_EQ(shuffled.batch(5).steps_per_epoch(), 2);
  EXPECT_EQ(shuffled.global_batch(), 4);
  EXPECT_EQ(plain.description(), "counting");
}

class NamesTest : public ::testing::Test {
 protected:
  Dataset table(const std::string& name, const std::string& text) const {
    write_bytes(directory_ / name, text);
    return Dataset::from_csv(directory_ / name, {.scale = ColumnScale::none});
  }
  static std::vector<std::int32_t> labels_of(const Dataset& dataset) {
    std::vector<std::int32_t> labels;
    for (std::int64_t id = 0; id < dataset.size(); ++id)
      labels.push_back(read(dataset.source(), id).label());
    return labels;
  }
  const TemporaryDirectory directory_;
};

TEST_F(NamesTest, ClassesAreRenumberedByName) {
  const Dataset fruit = table("a.csv", "x,kind\n1,pear\n2,apple\n3,pear\n").batch(2);
  EXPECT_THAT(labels_of(fruit), ElementsAre(1, 0, 1));
  const Dataset renumbered = fruit.with_classes({"plum", "pear", "apple"});
  EXPECT_THAT(labels_of(renumbered), ElementsAre(1, 2, 1));
  EXPECT_EQ(renumbered.spec(), SampleSpec::classification({1}, 3));
  EXPECT_THAT(renumbered.source().info().class_names, ElementsAre("plum", "pear", "apple"));
  EXPECT_EQ(renumbered.global_batch(), 2);
  const auto stream = renumbered.stream({});
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(copy(parts[0].labels()), ElementsAre(1, 2));
}

TEST_F(NamesTest, RejectsUnknownClass) {
  const Dataset fruit = table("a.csv", "x,kind\n1,pear\n2,apple\n");
  EXPECT_EQ(data_error_of([&] {
              fruit.with_classes({"plum", "pear"});
            }),
            "[" + (directory_ / "a.csv").string() +
                "] expected only the classes plum, pear; it has the class apple");
  EXPECT_EQ(data_error_of([] {
              counting(10, 5).with_classes({"a", "b", "c", "d", "e"});
            }),
            "[counting] expected names of its 5 classes; there are 0");
}

TEST_F(NamesTest, RejectsInvalidLabelsOfMapsBeforeRenumbering) {
  const Dataset fruit = table("a.csv", "x,kind\n1,pear\n2,apple\n");
  for (const std::int32_t label : {-2, 2, 1'000'000}) {
    const Dataset renumbered =
        fruit.map([=](Sample& sample, const SampleKey&) { sample.label() = label; })
            .take(2)
            .with_classes({"apple", "pear"});
    EXPECT_THAT(
        data_error_of([&] { read(renumbered.source(), 1); }),
        ::testing::HasSubstr(fmt::format("expected labels 0 .. 1; record 1 has {}", label)));
  }
}

TEST_F(NamesTest, FeatureNamesSurviveOperations) {
  const Dataset left = table("a.csv", "width,height,kind\n1,2,0\n3,4,1\n");
  const auto nothing = [](Sample&, const SampleKey&) {};
  EXPECT_THAT(left.map(nothing).take(1).repeat(2).cache().source().info().feature_names,
              ElementsAre("width", "height"));
  const Dataset unnamed = table("b.csv", "5,6,0\n7,8,1\n");
  EXPECT_THAT(left.concatenate(unnamed).source().info().feature_names,
              ElementsAre("width", "height"));
  const Dataset swapped = table("c.csv", "height,width,kind\n2,1,0\n4,3,1\n");
  EXPECT_EQ(input_error_of([&] { left.concatenate(swapped); }),
            "[concatenate] expected data sets of the same features, number 1 of which is width; "
            "that of " +
                (directory_ / "c.csv").string() + " is height");
}

TEST_F(NamesTest, RejectsJoiningTablesOfDifferentScales) {
  write_bytes(directory_ / "a.csv", "x,kind\n1,0\n3,1\n");
  write_bytes(directory_ / "b.csv", "x,kind\n1,0\n5,1\n");
  const Dataset left = Dataset::from_csv(directory_ / "a.csv");
  EXPECT_THAT(input_error_of([&] { left.concatenate(Dataset::from_csv(directory_ / "b.csv")); }),
              ::testing::HasSubstr("[concatenate] expected tables that are scaled alike"));
  const Dataset right =
      Dataset::from_csv(directory_ / "b.csv", {.schema = left.source().info().table});
  EXPECT_THAT(read(left.concatenate(right).source(), 3).features(), ElementsAre(3));
}

TEST_F(NamesTest, TargetNamesSurviveOperations) {
  const auto dataset = [&](const std::string& name, const std::string& header) {
    write_bytes(directory_ / name, header + "\n1,2,3\n4,5,6\n");
    return Dataset::from_csv(directory_ / name,
                             {.targets = {"2", "3"}, .scale = ColumnScale::none});
  };
  const Dataset left = dataset("a.csv", "x,price,rate");
  const auto nothing = [](Sample&, const SampleKey&) {};
  EXPECT_THAT(left.map(nothing).take(1).repeat(2).cache().source().info().target_names,
              ElementsAre("price", "rate"));
  EXPECT_THAT(left.concatenate(dataset("b.csv", "1,2,3")).source().info().target_names,
              ElementsAre("price", "rate"));
  EXPECT_EQ(input_error_of([&] { left.concatenate(dataset("c.csv", "x,rate,price")); }),
            "[concatenate] expected data sets of the same targets, number 1 of which is price; "
            "that of " +
                (directory_ / "c.csv").string() + " is rate");
}

}  // namespace
}  // namespace lockstep::inline v0::data
