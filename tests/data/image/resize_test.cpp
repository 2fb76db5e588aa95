#include "lockstep/data/image/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/data/image/encode.h"

namespace lockstep::inline v0::data {
namespace {

Bytes resized(const DecodedPart& part, Filter filter, int height, int width, bool flip = false) {
  Bytes output(static_cast<std::size_t>(height) * width * part.pixels.channels);
  PixelSink sink(output, height, width, part.pixels.channels);
  Resizer().resize(part, filter, flip, sink);
  return output;
}

Bytes resized(const Image& image, Filter filter, int height, int width) {
  return resized(whole(image.view()), filter, height, width);
}

Image row_of(const Bytes& pixels) {
  Image image;
  image.reshape(1, static_cast<int>(pixels.size()), 1);
  std::ranges::copy(pixels, image.span().pixels);
  return image;
}

/// The interpolated value by definition, in real numbers: `kernel` is the weight of a pixel at a
/// distance from the output pixel's center.
double reference(const ImageView& image, double y, double x, double reach_y, double reach_x,
                 const std::function<double(double, double)>& kernel, int c) {
  double sum = 0;
  double weights = 0;
  for (int row = 0; row < image.height; ++row) {
    const double row_weight = kernel(std::abs(row + 0.5 - y), reach_y);
    for (int column = 0; column < image.width && row_weight > 0; ++column) {
      const double weight = row_weight * kernel(std::abs(column + 0.5 - x), reach_x);
      sum += weight * image.at(column, row)[c];
      weights += weight;
    }
  }
  return sum / weights;
}

double triangle(double distance, double reach) { return std::max(0.0, 1 - distance / reach); }

/// The part of the input pixel at this distance that an output pixel of this extent covers.
double box(double distance, double extent) {
  const double low = std::max(-extent / 2, distance - 0.5);
  const double high = std::min(extent / 2, distance + 0.5);
  return std::max(0.0, high - low);
}

struct Sizes {
  int from_height, from_width, height, width;
};

const std::vector<Sizes> kSizes = {{7, 5, 7, 5},   {8, 12, 4, 6}, {20, 31, 9, 7}, {5, 4, 11, 13},
                                   {40, 3, 5, 10}, {1, 1, 4, 3},  {6, 9, 1, 1},   {64, 64, 3, 50}};

TEST(Resize, IsWithinRoundingOfTheDefinition) {
  for (const Sizes& s : kSizes) {
    for (const int channels : {1, 3}) {
      const Image image = noisy_image(s.from_height, s.from_width, channels);
      const double scale_y = static_cast<double>(s.from_height) / s.height;
      const double scale_x = static_cast<double>(s.from_width) / s.width;
      for (const Filter filter : {Filter::bilinear, Filter::antialiased, Filter::area}) {
        const Bytes ours = resized(image, filter, s.height, s.width);
        for (int i = 0; i < s.height * s.width * channels; ++i) {
          const int c = i % channels;
          double x = (i / channels % s.width + 0.5) * scale_x;
          double y = (i / channels / s.width + 0.5) * scale_y;
          if (filter == Filter::bilinear) {
            x = std::clamp(x, 0.5, s.from_width - 0.5);
            y = std::clamp(y, 0.5, s.from_height - 0.5);
          }
          const double exact =
              filter == Filter::area       ? reference(image.view(), y, x, scale_y, scale_x, box, c)
              : filter == Filter::bilinear ? reference(image.view(), y, x, 1, 1, triangle, c)
                                           : reference(image.view(), y, x, std::max(scale_y, 1.0),
                                                       std::max(scale_x, 1.0), triangle, c);
          ASSERT_NEAR(ours[static_cast<std::size_t>(i)], exact, 0.6)
              << s.from_height << " x " << s.from_width << " to " << s.height << " x " << s.width
              << ", filter " << static_cast<int>(filter) << ", element " << i;
        }
      }
    }
  }
}

TEST(Resize, HasItsCentersAtHalfPixels) {
  // Twice as wide: interpolated at quarters between neighbors, the ends repeated.
  EXPECT_EQ(resized(row_of({0, 100, 200}), Filter::bilinear, 1, 6),
            (Bytes{0, 25, 75, 125, 175, 200}));
  // Half as wide: bilinear reads between the middle two of four, at 1.0 and 3.0.
  EXPECT_EQ(resized(row_of({0, 100, 40, 60}), Filter::bilinear, 1, 2), (Bytes{50, 50}));
  // A third: bilinear reads one pixel of three, area all.
  EXPECT_EQ(resized(row_of({0, 90, 240}), Filter::bilinear, 1, 1), (Bytes{90}));
  EXPECT_EQ(resized(row_of({0, 90, 240}), Filter::area, 1, 1), (Bytes{110}));
  // Antialiased to a half: weights 1, 3, 3, 1 of 8, without those beyond the ends.
  EXPECT_EQ(resized(row_of({70, 70, 140, 0, 70, 70}), Filter::antialiased, 1, 3),
            (Bytes{80, 70, 60}));
}

/// torch.nn.functional.interpolate of the same row in float64, rounded: mode "bilinear",
/// align_corners=False, antialias on and off; mode "area".
TEST(Resize, AgreesWithPyTorch) {
  const Image row = row_of({12, 200, 33, 90, 255, 0, 71, 180, 64, 5, 143});
  EXPECT_EQ(resized(row, Filter::antialiased, 1, 4), (Bytes{97, 118, 96, 74}));
  EXPECT_EQ(resized(row, Filter::antialiased, 1, 7), (Bytes{87, 89, 159, 69, 125, 67, 88}));
  EXPECT_EQ(resized(row, Filter::bilinear, 1, 7), (Bytes{66, 57, 161, 0, 133, 56, 104}));
  const Bytes wider = {12, 112, 163, 49, 67, 136, 250, 88, 24, 74, 149, 133, 58, 18, 70, 143};
  EXPECT_EQ(resized(row, Filter::bilinear, 1, 16), wider);
  EXPECT_EQ(resized(row, Filter::antialiased, 1, 16), wider);
  EXPECT_EQ(resized(row_of({12, 200, 33, 90, 255, 0, 71, 180, 64}), Filter::area, 1, 3),
            (Bytes{82, 115, 105}));
}

TEST(Resize, LeavesAConstantImageConstant) {
  const Image image = constant_image(37, 23, {255, 1, 128});
  for (const Filter filter : {Filter::bilinear, Filter::antialiased, Filter::area}) {
    const Bytes output = resized(image, filter, 11, 50);
    for (std::size_t i = 0; i < output.size(); i += 3) {
      ASSERT_EQ(output[i], 255);
      ASSERT_EQ(output[i + 1], 1);
      ASSERT_EQ(output[i + 2], 128);
    }
  }
}

TEST(Resize, CopiesImagesOfTheSameSize) {
  const Image image = noisy_image(9, 14);
  for (const Filter filter : {Filter::bilinear, Filter::antialiased, Filter::area})
    EXPECT_EQ(resized(image, filter, 9, 14), pixels_of(image.view()));
}

TEST(Resize, Mirrors) {
  const Image image = noisy_image(9, 14);
  const Bytes straight = resized(whole(image.view()), Filter::bilinear, 5, 6);
  const Bytes mirrored = resized(whole(image.view()), Filter::bilinear, 5, 6, true);
  for (int y = 0; y < 5; ++y) {
    for (int x = 0; x < 6; ++x) {
      for (int c = 0; c < 3; ++c)
        EXPECT_EQ(mirrored[static_cast<std::size_t>((y * 6 + 5 - x) * 3 + c)],
                  straight[static_cast<std::size_t>((y * 6 + x) * 3 + c)]);
    }
  }
}

TEST(Resize, ResizesPartsThatBeginWithinAPixel) {
  const Image image = row_of({0, 40, 80, 120, 160, 200});
  // From 0.5 to 4.5 in four: the centers 1, 2, 3, 4 are between pixels.
  EXPECT_EQ(resized(DecodedPart{image.view(), 0.5, 0, 4, 1}, Filter::bilinear, 1, 4),
            (Bytes{20, 60, 100, 140}));
}

}  // namespace
}  // namespace lockstep::inline v0::data
