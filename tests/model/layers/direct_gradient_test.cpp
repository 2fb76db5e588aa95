#include "lockstep/model/layers/conv_2d/direct_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/lanes.h"

namespace lockstep::inline v0::model::cpu {
namespace {

struct DirectCase {
  std::string name;
  std::int64_t batch, filters;
  WindowGeometry window;
};
std::ostream& operator<<(std::ostream& out, const DirectCase& c) { return out << c.name; }

DirectCase make_case(std::string name, std::int64_t batch, std::int64_t filters,
                     WindowGeometry window) {
  window.output_height =
      (window.height + window.pad_top + window.pad_bottom - window.kernel_height) /
          window.stride_height +
      1;
  window.output_width = (window.width + window.pad_left + window.pad_right - window.kernel_width) /
                            window.stride_width +
                        1;
  return {std::move(name), batch, filters, window};
}

Conv2DSpec spec_of(const DirectCase& c, bool bias = true) {
  return {
      .batch = c.batch, .window = c.window, .filters = c.filters, .bias = bias, .training = true};
}

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// Random images and gradients of the output.
class Arrays {
 public:
  explicit Arrays(const Conv2DSpec& spec)
      : spec_(spec),
        images_(random_values(spec.batch * w().height * w().width * w().channels, 5)),
        gradient_(
            random_values(spec.batch * w().output_height * w().output_width * spec.filters, 6)) {}

  // The gradient of the kernel, followed by that of the bias.
  std::vector<float> gradients() const {
    struct alignas(64) Line {
      std::byte bytes[64];
    };
    const DirectKernelGradient gradient(spec_);
    std::vector<Line> scratch((gradient.scratch_bytes() + sizeof(Line) - 1) / sizeof(Line));
    // The arena may hold data of another layer: NaN here.
    std::memset(static_cast<void*>(scratch.data()), 0xff, scratch.size() * sizeof(Line));
    const auto kernel = static_cast<std::size_t>(spec_.filters * taps());
    std::vector<float> result(kernel + (spec_.bias ? static_cast<std::size_t>(spec_.filters) : 0),
                              NAN);
    gradient.run(images_.data(), gradient_.data(), result.data(),
                 spec_.bias ? result.data() + kernel : nullptr,
                 std::as_writable_bytes(std::span(scratch)));
    return result;
  }

  // The gradients by definition.
  std::vector<double> expected() const {
    std::vector<double> result(
        static_cast<std::size_t>(spec_.filters * (taps() + (spec_.bias ? 1 : 0))));
    for (std::int64_t pixel = 0; pixel < spec_.batch * w().output_height * w().output_width;
         ++pixel)
      for (std::int64_t filter = 0; filter < spec_.filters; ++filter) {
        const double gradient = gradient_[at(pixel * spec_.filters + filter)];
        for (std::int64_t tap = 0; tap < taps(); ++tap)
          result[at(filter * taps() + tap)] += gradient * image_at(pixel, tap);
        if (spec_.bias) result[at(spec_.filters * taps() + filter)] += gradient;
      }
    return result;
  }

 private:
  const WindowGeometry& w() const { return spec_.window; }
  std::int64_t taps() const { return w().kernel_height * w().kernel_width * w().channels; }
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  double image_at(std::int64_t pixel, std::int64_t tap) const {
    const std::int64_t row = pixel / w().output_width;
    const std::int64_t y = row % w().output_height * w().stride_height - w().pad_top +
                           tap / w().channels / w().kernel_width;
    const std::int64_t x = pixel % w().output_width * w().stride_width - w().pad_left +
                           tap / w().channels % w().kernel_width;
    if (y < 0 || y >= w().height || x < 0 || x >= w().width) return 0;
    return images_[at(((row / w().output_height * w().height + y) * w().width + x) * w().channels +
                      tap % w().channels)];
  }

  Conv2DSpec spec_;
  std::vector<float> images_;
  std::vector<float> gradient_;
};

class DirectGradient : public ::testing::TestWithParam<DirectCase> {};

TEST_P(DirectGradient, MatchesTheDefinition) {
  for (const bool bias : {true, false}) {
    const Arrays arrays(spec_of(GetParam(), bias));
    const std::vector<float> got = arrays.gradients();
    const std::vector<double> expected = arrays.expected();
    ASSERT_EQ(got.size(), expected.size());
    const WindowGeometry& w = GetParam().window;
    // The deviation of a sum, to which rounding errors are relative.
    const double scale =
        std::sqrt(static_cast<double>(GetParam().batch * w.output_height * w.output_width));
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-5 * scale) << i << " bias " << bias;
  }
}

TEST_P(DirectGradient, IsBitwiseEqualForAnyThreadCount) {
  const Arrays arrays(spec_of(GetParam()));
  const auto gradients = [&](int threads) {
    const int before = thread_budget();
    set_thread_budget(threads);
    std::vector<float> result = arrays.gradients();
    set_thread_budget(before);
    return result;
  };
  const std::vector<float> one = gradients(1);
  for (const int threads : {2, 3}) {
    const std::vector<float> more = gradients(threads);
    EXPECT_EQ(std::memcmp(more.data(), one.data(), one.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DirectGradient,
    ::testing::Values(
        make_case("one_channel", 3, 32, {9, 8, 1, 3, 3, 1, 1, 0, 0, 1, 1, 1, 1}),
        make_case("three_channels", 2, 48, {7, 9, 3, 3, 3, 1, 1, 0, 0, 1, 1, 1, 1}),
        make_case("one_vector", 2, kLanes, {6, 5, 2, 2, 3, 1, 1, 0, 0, 0, 0, 0, 0}),
        make_case("three_vectors", 2, 3 * kLanes, {6, 5, 4, 3, 3, 1, 1, 0, 0, 1, 1, 1, 1}),
        make_case("strides", 2, 16, {11, 13, 3, 5, 4, 2, 3, 0, 0, 2, 1, 1, 2}),
        make_case("one_pixel", 2, 16, {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}),
        make_case("only_zeros_around", 2, 16, {1, 2, 1, 5, 5, 1, 1, 0, 0, 2, 2, 2, 2}),
        make_case("batch_of_uneven_parts", 37, 16, {5, 5, 1, 3, 3, 1, 1, 0, 0, 1, 1, 1, 1}),
        make_case("more_rows_than_fit", 2, 64, {19, 17, 1, 3, 3, 1, 1, 0, 0, 1, 1, 1, 1}),
        make_case("rows_in_parts", 2, 64, {1, 211, 2, 1, 7, 1, 1, 0, 0, 0, 0, 3, 3})),
    [](const auto& each) { return each.param.name; });

TEST(DirectGradientIsProfitable, ForFewChannelsInFloat32) {
  const auto is_profitable =
      [](std::int64_t channels, std::int64_t filters, std::int64_t groups = 1,
         memory::data_type type = memory::data_type::f32, std::int64_t batch = 8) {
        Conv2DSpec spec =
            spec_of(make_case("", batch, filters, {8, 8, channels, 3, 3, 1, 1, 0, 0, 1, 1, 1, 1}));
        spec.groups = groups;
        return DirectKernelGradient::is_profitable(spec, type);
      };
  EXPECT_EQ(is_profitable(1, 32), kLanes == 8 && kLanes == lanes_of_onednn());
  EXPECT_FALSE(is_profitable(1, 33));
  EXPECT_FALSE(is_profitable(64, 64));
  EXPECT_FALSE(is_profitable(2, 32, 2));
  EXPECT_FALSE(is_profitable(1, 32, 1, memory::data_type::bf16));
  EXPECT_FALSE(is_profitable(1, 32, 1, memory::data_type::f32, 7))
      << "too little for several threads";
  EXPECT_FALSE(is_profitable(1, 2048)) << "too many sums";
}

}  // namespace
}  // namespace lockstep::inline v0::model::cpu
