#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "lockstep/data/dataset.h"
#include "tests/data/counting_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;

bool has_label_2(const Sample& sample) { return sample.label() == 2; }

TEST(Filter, KeepsMatchingRecordsInOrder) {
  for (const int threads : {0, 1, 2, 3, 20}) {
    const auto source = std::make_shared<CountingSource>(19);
    const Dataset kept = Dataset::from_source(source).filter(has_label_2, threads);
    EXPECT_EQ(source->reads(), 19) << "each record once";
    EXPECT_EQ(kept.size(), 4);
    std::vector<float> values;
    for (std::int64_t id = 0; id < kept.size(); ++id)
      values.push_back(read(kept.source(), id).features()[0]);
    EXPECT_THAT(values, ElementsAre(2, 7, 12, 17)) << threads << " threads";
    EXPECT_EQ(kept.description(), "counting, 4 of 19 records by a filter");
  }
}

TEST(Filter, SeesTheOutputOfPrecedingMaps) {
  const Dataset kept = Dataset::from_source(std::make_shared<CountingSource>(10))
                           .map([](Sample& sample, const SampleKey& key) {
                             EXPECT_EQ(key.epoch, 0);
                             sample.features()[0] = 100 - sample.features()[0];
                           })
                           .filter([](const Sample& sample) { return sample.features()[0] < 93; });
  EXPECT_EQ(kept.size(), 2);
  EXPECT_EQ(read(kept.source(), 0).features()[0], 92);
}

TEST(Filter, SeesTargetsAndTheFeaturesOfImages) {
  const Dataset regression = Dataset::from_source(std::make_shared<CountingSource>(10, 3));
  EXPECT_EQ(regression.filter([](const Sample& sample) { return sample.values()[2] > 6; }).size(),
            3);
  const Dataset images =
      Dataset::from_memory(std::vector<std::uint8_t>{255, 0, 255},
                           std::vector<std::int32_t>{0, 0, 0}, SampleSpec::classification({1}, 1))
          .filter([](const Sample& sample) {
            return sample.features()[0] == 1.0f && sample.pixels().empty();
          });
  EXPECT_EQ(images.size(), 2);
  EXPECT_TRUE(images.source().info().has_images) << "they are still bytes";
}

TEST(Filter, MayBeEmpty) {
  const Dataset none =
      Dataset::from_source(std::make_shared<CountingSource>(5)).filter([](const Sample&) {
        return false;
      });
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(none.filter(has_label_2).size(), 0);
  EXPECT_EQ(
      data_error_of([&] { none.batch(2).stream({}); }),
      "[counting, 0 of 5 records by a filter] expected at least one record; the data set is empty");
}

TEST(Filter, ThrowsTheFirstErrorInTheOrderOfTheRecords) {
  for (int trial = 0; trial < 50; ++trial) {
    const Dataset broken = Dataset::from_source(std::make_shared<CountingSource>(100, 0, 41));
    EXPECT_EQ(data_error_of([&] { broken.filter(has_label_2, 1 + trial % 8); }),
              "[source] expected a whole record; record 41 is broken");
  }
}

TEST(Filter, RejectsInvalidArguments) {
  const Dataset dataset = Dataset::from_source(std::make_shared<CountingSource>(5));
  EXPECT_EQ(input_error_of([&] { dataset.filter({}); }),
            "[filter] expected a predicate; it is empty");
  EXPECT_EQ(input_error_of([&] { dataset.filter(has_label_2, -1); }),
            "[filter] expected 0 or more threads, got -1");
  EXPECT_EQ(input_error_of([&] { dataset.shuffle().filter(has_label_2); }),
            "[filter] expected a call before shuffle(), mixup() and batch(), because it selects "
            "records by id; it was called after shuffle()");
}

}  // namespace
}  // namespace lockstep::inline v0::data
