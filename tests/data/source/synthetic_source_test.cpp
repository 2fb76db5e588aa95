#include "lockstep/data/source/memory_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/pixels.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

TEST(Synthetic, IsAFunctionOfSeedPartAndRecord) {
  const SyntheticSource source({{5, 7, 3}, 4, 100, 1, "train"});
  const SyntheticSource same({{5, 7, 3}, 4, 1000, 1, "train"});
  EXPECT_EQ(source.spec(), SampleSpec::classification({5, 7, 3}, 4));
  EXPECT_EQ(source.size(), 100);
  for (const std::int64_t id : {0, 1, 99}) {
    EXPECT_EQ(read(source, id).features(), read(same, id).features());
    EXPECT_EQ(read(source, id).label(), read(same, id).label());
    EXPECT_NE(read(source, id).features(),
              read(SyntheticSource({{5, 7, 3}, 4, 100, 2, "train"}), id).features());
    EXPECT_NE(read(source, id).features(),
              read(SyntheticSource({{5, 7, 3}, 4, 100, 1, "test"}), id).features());
  }
  EXPECT_NE(read(source, 0).features(), read(source, 1).features());
}

TEST(Synthetic, UsesAllClassesAndTheUnitInterval) {
  const SyntheticSource source({{10'000}, 7, 2000, 3, "train"});
  std::vector<int> counts(7);
  for (std::int64_t id = 0; id < source.size(); ++id) {
    const ReadSample sample = read(source, id);
    ++counts.at(static_cast<std::size_t>(sample.label()));
    for (const float value : sample.features()) ASSERT_TRUE(value >= 0.0f && value < 1.0f);
  }
  for (const int count : counts) EXPECT_NEAR(count, 2000.0 / 7, 80);
}

/// The features determine the class: nearest mean of the training part, on the test part.
TEST(Synthetic, CanBeLearned) {
  const SyntheticSource train({{8, 8, 1}, 5, 500, 1, "train"});
  const SyntheticSource test({{8, 8, 1}, 5, 200, 1, "test"});
  std::vector<std::vector<double>> means(5, std::vector<double>(64));
  std::vector<double> counts(5);
  for (std::int64_t id = 0; id < train.size(); ++id) {
    const ReadSample sample = read(train, id);
    const auto label = static_cast<std::size_t>(sample.label());
    ++counts[label];
    for (std::size_t i = 0; i < 64; ++i) means[label][i] += sample.features()[i];
  }
  int right = 0;
  for (std::int64_t id = 0; id < test.size(); ++id) {
    const ReadSample sample = read(test, id);
    std::vector<double> distances(5);
    for (std::size_t label = 0; label < 5; ++label) {
      for (std::size_t i = 0; i < 64; ++i)
        distances[label] += std::pow(means[label][i] / counts[label] - sample.features()[i], 2);
    }
    right +=
        std::min_element(distances.begin(), distances.end()) - distances.begin() == sample.label();
  }
  EXPECT_GE(right, 190);
}

SyntheticOptions images_of(std::vector<std::int64_t> shape) {
  return {.shape = std::move(shape), .classes = 4, .count = 10, .images = true};
}

TEST(SyntheticImages, AreTheSamplesIn256Steps) {
  const SyntheticSource source({{5, 7, 3}, 4, 10, 1, "train"});
  const SyntheticSource images(images_of({5, 7, 3}));
  for (std::int64_t id = 0; id < 10; ++id) {
    const ReadSample expected = read(source, id);
    const ReadSample image = read(images, id);
    EXPECT_EQ(image.label(), expected.label());
    for (std::size_t i = 0; i < expected.features().size(); ++i)
      ASSERT_NEAR(image.features()[i], expected.features()[i],
                  3.0f / 256);  // two are rounded down, and divided by 255
  }
}

TEST(SyntheticImages, ArePixelsOnRequest) {
  const SyntheticSource images(images_of({5, 7, 3}));
  EXPECT_TRUE(images.info().has_images);
  Batch one(images.spec(), 1, true);
  Sample sample = one.sample();
  images.read(3, sample);
  std::vector<float> features(105);
  pixels_to_features(one.pixels(), {}, features);
  EXPECT_EQ(features, read(images, 3).features());
}

TEST(SyntheticImages, HaveOneToFourChannels) {
  EXPECT_EQ(input_error_of([] {
              SyntheticSource source(images_of({5, 7, 5}));
            }),
            "[synthetic data] expected a shape HxWxC of 1 to 4 channels for images, got 5x7x5");
  EXPECT_EQ(input_error_of([] { SyntheticSource source(images_of({16})); }),
            "[synthetic data] expected a shape HxWxC of 1 to 4 channels for images, got 16");
}

TEST(Synthetic, RefusesEmptyShapes) {
  EXPECT_EQ(input_error_of([] {
              SyntheticSource source({{5, 0}, 4, 100, 1, "train"});
            }),
            "[synthetic data] expected at least 1 element in every dimension, got 0");
  EXPECT_EQ(input_error_of([] {
              SyntheticSource source({{5}, 0, 100, 1, "train"});
            }),
            "[synthetic data] expected at least 1 class, got 0");
  EXPECT_EQ(input_error_of([] {
              SyntheticSource source({{5}, 2, 0, 1, "train"});
            }),
            "[synthetic data] expected at least 1 record, got 0");
}

}  // namespace
}  // namespace lockstep::inline v0::data
