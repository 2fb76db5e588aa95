// Samples of the program's own: in memory, or from a function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "lockstep/data/dataset.h"
#include "lockstep/data/image/image.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;

const SampleSpec kPairs = {.shape = {2}, .classes = 3};

Batch first_batch(const Dataset& dataset, bool pixels = false) {
  std::vector<Batch> parts;
  EXPECT_TRUE(dataset.stream({.pixels = pixels})->next(parts));
  return parts.front();
}

TEST(SamplesInMemory, AreFloatsWithClasses) {
  const Dataset dataset =
      Dataset::from_memory(std::vector<float>{1, 2, 3, 4}, std::vector<std::int32_t>{2, 0}, kPairs);
  EXPECT_EQ(dataset.size(), 2);
  EXPECT_EQ(dataset.spec(), kPairs);
  EXPECT_EQ(dataset.description(), "2 samples of 2 in memory");
  const Batch batch = first_batch(dataset.batch(2));
  EXPECT_THAT(batch.features, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(batch.labels, ElementsAre(2, 0));
}

TEST(SamplesInMemory, HaveTargetsWhereThereAreNoClasses) {
  const Dataset dataset =
      Dataset::from_memory(std::vector<float>{1, 2, 3}, std::vector<float>{5, 6, 7, 8, 9, 10},
                           {.shape = {1}, .targets = 2});
  const Batch batch = first_batch(dataset.batch(3));
  EXPECT_THAT(batch.features, ElementsAre(1, 2, 3));
  EXPECT_THAT(batch.targets, ElementsAre(5, 6, 7, 8, 9, 10));
}

TEST(SamplesInMemory, MayBeImagesThatStayBytes) {
  const Dataset dataset =
      Dataset::from_memory(std::vector<std::uint8_t>{0, 255, 51, 102},
                           std::vector<std::int32_t>{1, 0}, {.shape = {1, 2, 1}, .classes = 2})
          .batch(2);
  EXPECT_EQ(dataset.description(), "2 images of 1x2x1 in memory");
  EXPECT_THAT(first_batch(dataset, true).pixels, ElementsAre(0, 255, 51, 102));
  EXPECT_THAT(first_batch(dataset).features, ElementsAre(0.0f, 1.0f, 0.2f, 0.4f));
}

TEST(SamplesInMemory, MustFitTheirSpec) {
  const auto message = [](MemoryFeatures features, MemoryLabels labels, const SampleSpec& spec) {
    return input_error_of(
        [&] { Dataset::from_memory(std::move(features), std::move(labels), spec); });
  };
  using Floats = std::vector<float>;
  using Classes = std::vector<std::int32_t>;
  EXPECT_EQ(message(Floats{1, 2, 3}, Classes{0}, kPairs),
            "[samples in memory] expected features in multiples of 2, for records of [2], got 3");
  EXPECT_EQ(message(Floats{1, 2}, Classes{0, 1}, kPairs),
            "[samples in memory] expected 1 labels for the features of 1 records, got 2");
  EXPECT_EQ(message(Floats{1, 2}, Floats{0}, kPairs),
            "[samples in memory] expected int32 class numbers, got floats");
  EXPECT_EQ(message(Floats{1, 2}, Classes{0}, {.shape = {2}, .targets = 3}),
            "[samples in memory] expected 3 float targets, got class numbers");
  EXPECT_EQ(message(Floats{1, 2}, Floats{0}, {.shape = {2}, .targets = 3}),
            "[samples in memory] expected 3 targets for the features of 1 records, got 1");
  EXPECT_EQ(message(Floats{1, 2}, Classes{0}, {.shape = {2}}),
            "[samples in memory] expected a number of classes or a number of targets, got 0 "
            "classes and 0 targets");
  EXPECT_EQ(message(Floats{1, 2}, Classes{0}, {.shape = {2}, .classes = 2, .targets = 2}),
            "[samples in memory] expected a number of classes or a number of targets, got 2 "
            "classes and 2 targets");
  EXPECT_EQ(message(Floats{}, Classes{}, {.shape = {0}, .classes = 2}),
            "[samples in memory] expected a shape with positive extents and at most 2^28 elements, "
            "got [0]");
  EXPECT_EQ(data_error_of([] {
              Dataset::from_memory(Floats{1, 2, 3, 4}, Classes{0, 3}, kPairs);
            }),
            "[samples in memory: record 1] expected a label from 0 to 2; it is 3");
}

Dataset squares(std::int64_t count) {
  return Dataset::from_generator(kPairs, count, [](std::int64_t record_id, Sample& sample) {
    sample.features[0] = static_cast<float>(record_id);
    sample.features[1] = static_cast<float>(record_id * record_id);
    sample.label = static_cast<std::int32_t>(record_id % 3);
  });
}

TEST(GeneratedSamples, AreMadeFromTheirRecordIdWhereverAStreamBegins) {
  const Dataset dataset = squares(5).batch(2);
  EXPECT_EQ(dataset.description(), "5 generated samples");
  const auto stream = dataset.stream({.first_step = 1});
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(parts[0].features, ElementsAre(2, 4, 3, 9));
  EXPECT_THAT(parts[0].labels, ElementsAre(2, 0));
}

TEST(GeneratedSamples, TellWhichRecordCouldNotBeMade) {
  const auto message = [](SampleGenerator generate) {
    return data_error_of([&] { read(Dataset::from_generator(kPairs, 9, generate).source(), 7); });
  };
  EXPECT_EQ(message([](std::int64_t, Sample&) { throw std::runtime_error("out of ideas"); }),
            "[generator: record 7] expected a sample; its function threw: out of ideas");
  EXPECT_EQ(message([](std::int64_t, Sample&) { throw 1; }),
            "[generator: record 7] expected a sample; its function threw an exception that is not "
            "a std::exception");
  EXPECT_EQ(message([](std::int64_t, Sample& sample) { sample.label = 3; }),
            "[generator: record 7] expected a label from 0 to 2; it is 3");
}

TEST(GeneratedSamples, NeedAFunctionAndASensibleNumber) {
  EXPECT_EQ(input_error_of([] { squares(-1); }), "[generator] expected 0 or more records, got -1");
  EXPECT_EQ(input_error_of([] { Dataset::from_generator(kPairs, 1, {}); }),
            "[generator] expected a function that generates records; it is empty");
  EXPECT_EQ(input_error_of([] {
              Dataset::from_generator({.shape = {}, .classes = 1}, 1, [](std::int64_t, Sample&) {});
            }),
            "[generator] expected a shape with positive extents and at most 2^28 elements, got []");
  EXPECT_EQ(squares(0).size(), 0);
}

}  // namespace
}  // namespace lockstep::data
