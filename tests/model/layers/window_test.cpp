#include "lockstep/model/layer/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/support/error_of.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::HasSubstr;

struct WindowCase {
  const char* name;
  std::int64_t input, kernel, stride;
  Padding padding;
  std::int64_t output, before, after;
};

std::ostream& operator<<(std::ostream& out, const WindowCase& test) { return out << test.name; }
std::string name_of_window(const ::testing::TestParamInfo<WindowCase>& info) {
  return info.param.name;
}

class Window : public ::testing::TestWithParam<WindowCase> {};

TEST_P(Window, HasTheExtentsOfItsPadding) {
  const WindowCase& c = GetParam();
  const WindowGeometry vertical =
      window_geometry(Shape{c.input, 1, 3}, {c.kernel, 1}, {c.stride, 1}, c.padding);
  EXPECT_EQ(vertical.output_height, c.output);
  EXPECT_EQ(vertical.pad_top, c.before);
  EXPECT_EQ(vertical.pad_bottom, c.after);
  EXPECT_EQ(vertical.output_width, 1) << "the axes do not mix";
  const WindowGeometry horizontal =
      window_geometry(Shape{1, c.input, 3}, {1, c.kernel}, {1, c.stride}, c.padding);
  EXPECT_EQ(horizontal.output_width, c.output);
  EXPECT_EQ(horizontal.pad_left, c.before);
  EXPECT_EQ(horizontal.pad_right, c.after);
}

// The values of same padding are those of TensorFlow, of symmetric padding those of PyTorch for
// padding (kernel - 1) / 2.
INSTANTIATE_TEST_SUITE_P(
    Geometries, Window,
    ::testing::Values(
        WindowCase{"valid", 28, 3, 1, Padding::valid, 26, 0, 0},
        WindowCase{"valid_with_a_remainder", 13, 2, 2, Padding::valid, 6, 0, 0},
        WindowCase{"valid_as_large_as_the_input", 3, 3, 1, Padding::valid, 1, 0, 0},
        WindowCase{"same", 28, 3, 1, Padding::same, 28, 1, 1},
        WindowCase{"same_strided", 28, 3, 2, Padding::same, 14, 0, 1},
        WindowCase{"same_strided_odd_input", 27, 3, 2, Padding::same, 14, 1, 1},
        WindowCase{"same_first_of_resnet", 224, 7, 2, Padding::same, 112, 2, 3},
        WindowCase{"same_even_kernel", 5, 2, 1, Padding::same, 5, 0, 1},
        WindowCase{"same_wide_stride", 5, 1, 2, Padding::same, 3, 0, 0},
        WindowCase{"same_kernel_above_input", 1, 5, 1, Padding::same, 1, 2, 2},
        WindowCase{"symmetric_strided", 28, 3, 2, Padding::symmetric, 14, 1, 1},
        WindowCase{"symmetric_first_of_resnet", 224, 7, 2, Padding::symmetric, 112, 3, 3},
        WindowCase{"symmetric_pooling_of_resnet", 112, 3, 2, Padding::symmetric, 56, 1, 1},
        WindowCase{"symmetric_wide_stride", 28, 1, 2, Padding::symmetric, 14, 0, 0},
        WindowCase{"symmetric_strided_odd_input", 17, 3, 2, Padding::symmetric, 9, 1, 1}),
    name_of_window);

TEST(WindowGeometry, RefusesExtentsThatAreNotPositive) {
  const BuildContext context("conv", "conv2d", {{4, 4, 1}});
  for (const auto& window :
       {std::pair{Extent2D(0), Extent2D(1)}, std::pair{Extent2D(3, -1), Extent2D(1)},
        std::pair{Extent2D(3), Extent2D(0)}, std::pair{Extent2D(3), Extent2D(1, 0)}})
    EXPECT_THAT(input_error_of([&] {
                  window_geometry(context, {4, 4, 1}, window.first, window.second, Padding::valid);
                }),
                HasSubstr("[layer conv (conv2d)] expected a positive window and stride, got "));
}

TEST(WindowGeometry, RefusesAnImageSmallerThanTheWindow) {
  const BuildContext context("conv", "conv2d", {{4, 2, 1}});
  EXPECT_EQ(input_error_of([&] {
              window_geometry(context, {4, 2, 1}, 3, 1, Padding::valid);
            }),
            "[layer conv (conv2d)] expected an image of at least 3x3, got [4, 2, 1]");
}

TEST(ParsePadding, AcceptsItsNames) {
  EXPECT_EQ(parse_padding("valid"), Padding::valid);
  EXPECT_EQ(parse_padding("same"), Padding::same);
  EXPECT_EQ(parse_padding("symmetric"), Padding::symmetric);
  EXPECT_THAT(input_error_of([] { parse_padding("full"); }), HasSubstr("got \"full\""));
}

}  // namespace
}  // namespace lockstep::inline v0::model
