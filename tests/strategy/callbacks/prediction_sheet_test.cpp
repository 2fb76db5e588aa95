#include "lockstep/train/tensorboard/prediction_sheet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::train {
namespace {

using ::testing::HasSubstr;

/// The RGB values of a pixel.
std::tuple<int, int, int> color_at(const data::Image& image, int x, int y) {
  const std::uint8_t* const pixel = image.view().at(x, y);
  return {pixel[0], pixel[1], pixel[2]};
}

data::Image gray_image(int height, int width, int shade) {
  data::Image image;
  image.reshape(height, width, 1);
  std::fill_n(image.span().pixels, height * width, static_cast<std::uint8_t>(shade));
  return image;
}

/// The text as rows of '#' and '.'.
std::string drawn(const std::string& text, int width) {
  data::Image image;
  image.reshape(7, width, 3);
  std::fill_n(image.span().pixels, 7 * width * 3, std::uint8_t{255});
  draw_text(text, 0, 0, image.span());
  std::string rows;
  for (int y = 0; y < 7; ++y, rows += '\n')
    for (int x = 0; x < width; ++x) rows += *image.view().at(x, y) == 0 ? '#' : '.';
  return rows;
}

TEST(PredictionSheet, DrawsText) {
  EXPECT_EQ(drawn("T1", 11),
            "#####...#..\n"
            "..#....##..\n"
            "..#.....#..\n"
            "..#.....#..\n"
            "..#.....#..\n"
            "..#.....#..\n"
            "..#....###.\n");
  EXPECT_EQ(drawn("T1", 10), drawn("T", 10)) << "what does not fit is cut";
  EXPECT_EQ(drawn("\n", 5), drawn("?", 5));
  EXPECT_EQ(drawn("\xff", 5), drawn("?", 5));
  EXPECT_NE(drawn("~", 5), drawn("?", 5)) << "the last character of the table";
}

TEST(PredictionSheet, FramesRightAndWrongPredictions) {
  std::vector<data::Image> images;
  for (const int shade : {10, 20, 30}) images.push_back(gray_image(28, 28, shade));
  const std::vector<ImagePrediction> predictions = {
      {.label = 1, .predicted = 1}, {.label = 0, .predicted = 1}, {.label = 2, .predicted = 2}};
  const data::Image sheet =
      prediction_sheet({.step = 1, .images = images, .predictions = predictions}, {"cat", "dog"});
  // Two columns of 4 * 28 pixels with frames of 3 and margins of 4; two lines of text below.
  EXPECT_EQ(sheet.width(), 2 * (112 + 6 + 4));
  EXPECT_EQ(sheet.height(), 2 * (112 + 6 + 20 + 4));
  EXPECT_EQ(color_at(sheet, 0, 0), std::tuple(46, 160, 67)) << "right";
  EXPECT_EQ(color_at(sheet, 122, 0), std::tuple(207, 34, 46)) << "wrong";
  EXPECT_EQ(color_at(sheet, 3, 3), std::tuple(10, 10, 10));
  EXPECT_EQ(color_at(sheet, 122 + 114, 114), std::tuple(20, 20, 20)) << "the last pixel";
  EXPECT_EQ(color_at(sheet, 3, 142 + 3), std::tuple(30, 30, 30)) << "the second row";
  EXPECT_EQ(color_at(sheet, 122 + 3, 142 + 3), std::tuple(255, 255, 255)) << "no fourth image";
  const auto has_text = [&](int left, int top) {
    for (int y = top; y < top + 7; ++y)
      for (int x = left; x < left + 100; ++x)
        if (color_at(sheet, x, y) == std::tuple(0, 0, 0)) return true;
    return false;
  };
  EXPECT_TRUE(has_text(0, 120));
  EXPECT_FALSE(has_text(0, 130)) << "the class of a right prediction is written once";
  EXPECT_TRUE(has_text(122, 130));
}

TEST(PredictionSheet, ReducesLargeImages) {
  std::vector<data::Image> images;
  images.push_back(gray_image(300, 501, 77));
  const std::vector<ImagePrediction> predictions(1);
  const data::Image sheet =
      prediction_sheet({.step = 1, .images = images, .predictions = predictions}, {});
  EXPECT_EQ(sheet.width(), 167 + 6 + 4) << "every third pixel";
  EXPECT_EQ(color_at(sheet, 3 + 166, 3 + 99), std::tuple(77, 77, 77));
}

TEST(PredictionSheet, RejectsImagesWithoutPredictions) {
  try {
    prediction_sheet({}, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_THAT(error.what(), HasSubstr("expected images with a prediction each, got 0 and 0"));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::train
