#include "lockstep/train/tensorboard/confusion_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace lockstep::inline v0::train {
namespace {

using Rgb = std::array<int, 3>;

constexpr Rgb kWhite = {255, 255, 255};
constexpr Rgb kBlue = {8, 48, 107};

model::MetricValue matrix_of(std::int64_t classes, std::vector<double> counts) {
  counts.resize(static_cast<std::size_t>(classes * classes));
  return {.name = "confusion", .values = std::move(counts), .shape = {classes, classes}};
}

Rgb pixel_at(const data::ImageView& image, int x, int y) {
  const std::uint8_t* const pixel = image.at(x, y);
  return {pixel[0], pixel[1], pixel[2]};
}

TEST(ConfusionImage, HasARowPerLabelWithTheFractionsAsColors) {
  // Class 0 has four samples, one predicted as 2; class 1 has none; class 2 is all correct.
  const data::Image image = confusion_image(matrix_of(3, {3, 0, 1, 0, 0, 0, 0, 0, 5}));
  const data::ImageView view = image.view();
  ASSERT_EQ(view.height, 510);
  ASSERT_EQ(view.width, 510);
  const Rgb three_quarters = {70, 100, 144};
  const Rgb quarter = {193, 203, 218};
  const Rgb expected[3][3] = {
      {three_quarters, kWhite, quarter}, {kWhite, kWhite, kWhite}, {kWhite, kWhite, kBlue}};
  for (const int offset : {0, 85, 169})
    for (int row = 0; row < 3; ++row)
      for (int column = 0; column < 3; ++column)
        EXPECT_EQ(pixel_at(view, 170 * column + offset, 170 * row + offset), expected[row][column])
            << row << " " << column << " " << offset;
}

TEST(ConfusionImage, HasLegibleCellsAndALimitedSize) {
  for (const auto& [classes, side] : {std::pair(1, 512),
                                      {2, 512},
                                      {10, 510},
                                      {64, 512},
                                      {65, 520},
                                      {256, 2048},
                                      {257, 1799},
                                      {1000, 2000},
                                      {2000, 2000}}) {
    const data::Image image = confusion_image(matrix_of(classes, {}));
    EXPECT_EQ(image.height(), side) << classes;
    EXPECT_EQ(image.width(), side) << classes;
  }
  std::vector<double> last(1'000'000);
  last.back() = 1;
  const data::Image image = confusion_image(matrix_of(1000, last));
  EXPECT_EQ(pixel_at(image.view(), 1998, 1998), kBlue);
  EXPECT_EQ(pixel_at(image.view(), 1997, 1998), kWhite);
}

TEST(ConfusionImage, RequiresSquareMatrices) {
  EXPECT_TRUE(has_image(matrix_of(2, {})));
  EXPECT_FALSE(has_image({.name = "f1", .values = {1}}));
  EXPECT_FALSE(has_image({.name = "f1_per_class", .values = {1, 2}, .shape = {2}}));
  EXPECT_FALSE(has_image({.name = "own", .values = {1, 2}, .shape = {1, 2}}));
  EXPECT_FALSE(has_image(matrix_of(2001, {})));
}

TEST(ConfusionImage, AcceptsAnyNumbers) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const data::Image image = confusion_image(matrix_of(2, {-1, 3, kNan, 1}));
  const data::ImageView view = image.view();
  EXPECT_EQ(pixel_at(view, 0, 0), kWhite);
  EXPECT_EQ(pixel_at(view, 256, 0), kBlue) << "3 of 2";
  EXPECT_EQ(pixel_at(view, 256, 256), kWhite);
}

}  // namespace
}  // namespace lockstep::inline v0::train
