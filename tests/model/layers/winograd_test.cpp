#include "lockstep/model/layers/conv_2d/winograd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/system/host.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model::cpu::winograd {
namespace {

struct WinogradCase {
  std::string name;
  std::int64_t batch, height, width, channels, filters;
  std::int64_t pad_top, pad_left, pad_bottom, pad_right;
};
std::ostream& operator<<(std::ostream& out, const WinogradCase& c) { return out << c.name; }

Conv2DSpec spec_of(const WinogradCase& c, bool relu = false) {
  Conv2DSpec spec{.batch = c.batch,
                  .window = {},
                  .filters = c.filters,
                  .relu = relu,
                  .training = true,
                  .input_gradient = true};
  spec.window = {.height = c.height,
                 .width = c.width,
                 .channels = c.channels,
                 .kernel_height = 3,
                 .kernel_width = 3,
                 .stride_height = 1,
                 .stride_width = 1,
                 .output_height = c.height + c.pad_top + c.pad_bottom - 2,
                 .output_width = c.width + c.pad_left + c.pad_right - 2,
                 .pad_top = c.pad_top,
                 .pad_bottom = c.pad_bottom,
                 .pad_left = c.pad_left,
                 .pad_right = c.pad_right};
  return spec;
}

// A convolution with random operands, computed by Winograd's algorithm and by the definition.
template <typename T>
class Case {
 public:
  explicit Case(const Conv2DSpec& spec)
      : spec_(spec),
        images_(random(spec.batch * window().height * window().width * window().channels)),
        kernel_(random(spec.filters * 9 * window().channels)),
        bias_(random<float>(spec.filters)),
        output_gradient_(
            random(spec.batch * window().output_height * window().output_width * spec.filters)) {
    if (sizeof(T) == 2) context_.type = memory::data_type::bf16;
  }

  std::vector<T> output() {
    return product(Pass::forward, images_, spec_.bias ? bias_.data() : nullptr,
                   output_gradient_.size());
  }
  std::vector<T> data_gradient() {
    return product(Pass::data_gradient, output_gradient_, nullptr, images_.size());
  }
  // The gradient of the kernel, followed by that of the bias.
  std::vector<float> parameter_gradients() {
    std::vector<float> result(kernel_.size() + (spec_.bias ? bias_.size() : 0), NAN);
    KernelGradient gradient(context_, spec_);
    std::vector<Line> scratch = scratch_of(gradient.scratch_bytes());
    gradient.run(view(images_), view(output_gradient_), result.data(),
                 spec_.bias ? result.data() + kernel_.size() : nullptr,
                 std::as_writable_bytes(std::span(scratch)));
    return result;
  }

  // Element `index` of the output, by definition.
  double output_at(std::int64_t index) const {
    const auto [n, y, x, filter] =
        place(index, window().output_height, window().output_width, spec_.filters);
    double sum = spec_.bias ? bias_[filter] : 0;
    for (std::int64_t tap = 0; tap < 9; ++tap)
      for (std::int64_t c = 0; c < window().channels; ++c)
        sum += image_at(n, y + tap / 3 - window().pad_top, x + tap % 3 - window().pad_left, c) *
               kernel_at(filter, tap, c);
    return spec_.relu ? std::max(sum, 0.0) : sum;
  }
  double data_gradient_at(std::int64_t index) const {
    const auto [n, y, x, c] = place(index, window().height, window().width, window().channels);
    double sum = 0;
    for (std::int64_t tap = 0; tap < 9; ++tap)
      for (std::int64_t filter = 0; filter < spec_.filters; ++filter)
        sum += gradient_at(n, y - tap / 3 + window().pad_top, x - tap % 3 + window().pad_left,
                           filter) *
               kernel_at(filter, tap, c);
    return sum;
  }
  double parameter_gradient_at(std::int64_t index) const {
    const std::int64_t kernel = std::ssize(kernel_);
    const std::int64_t filter = index < kernel ? index / (9 * window().channels) : index - kernel;
    const std::int64_t tap = index / window().channels % 9;
    double sum = 0;
    for (std::int64_t n = 0; n < spec_.batch; ++n)
      for (std::int64_t y = 0; y < window().output_height; ++y)
        for (std::int64_t x = 0; x < window().output_width; ++x)
          sum +=
              gradient_at(n, y, x, filter) *
              (index < kernel ? image_at(n, y + tap / 3 - window().pad_top,
                                         x + tap % 3 - window().pad_left, index % window().channels)
                              : 1);
    return sum;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct Place {
    std::int64_t n, y, x, channel;
  };

  const WindowGeometry& window() const { return spec_.window; }

  template <typename U = T>
  std::vector<U> random(std::int64_t count) {
    std::vector<U> values(static_cast<std::size_t>(count));
    for (U& value : values) value = U(normal_(generator_));
    return values;
  }

  static Place place(std::int64_t index, std::int64_t height, std::int64_t width,
                     std::int64_t channels) {
    const std::int64_t pixel = index / channels;
    return {pixel / width / height, pixel / width % height, pixel % width, index % channels};
  }
  static double pixel(const std::vector<T>& array, std::int64_t height, std::int64_t width,
                      std::int64_t channels, const Place& p) {
    if (p.y < 0 || p.y >= height || p.x < 0 || p.x >= width) return 0;
    return static_cast<float>(array[((p.n * height + p.y) * width + p.x) * channels + p.channel]);
  }
  double image_at(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return pixel(images_, window().height, window().width, window().channels, {n, y, x, c});
  }
  double gradient_at(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t filter) const {
    return pixel(output_gradient_, window().output_height, window().output_width, spec_.filters,
                 {n, y, x, filter});
  }
  double kernel_at(std::int64_t filter, std::int64_t tap, std::int64_t c) const {
    return static_cast<float>(kernel_[(filter * 9 + tap) * window().channels + c]);
  }

  static TensorView view(const std::vector<T>& values) {
    return {const_cast<T*>(values.data()), values.size(),
            sizeof(T) == 2 ? Precision::bfloat16 : Precision::float32};
  }
  // The arena may hold data of another layer: NaN here.
  static std::vector<Line> scratch_of(std::size_t bytes) {
    std::vector<Line> scratch((bytes + sizeof(Line) - 1) / sizeof(Line));
    std::memset(static_cast<void*>(scratch.data()), 0xff, scratch.size() * sizeof(Line));
    return scratch;
  }
  std::vector<T> product(Pass pass, const std::vector<T>& from, const float* bias,
                         std::size_t size) {
    std::vector<T> result(size, T(NAN));
    Product product(context_, spec_, pass);
    std::vector<Line> scratch = scratch_of(product.scratch_bytes());
    product.run(view(from), view(kernel_), bias, view(result),
                std::as_writable_bytes(std::span(scratch)));
    return result;
  }

  Conv2DSpec spec_;
  std::mt19937 generator_{7};
  std::normal_distribution<float> normal_;
  Context context_;
  std::vector<T> images_;
  std::vector<T> kernel_;
  std::vector<float> bias_;
  std::vector<T> output_gradient_;
};

// The largest difference of `values` from expected(index), in units of their root mean square;
// samples at most a few thousand elements.
template <typename T, typename Expected>
double difference(const std::vector<T>& values, const Expected& expected) {
  constexpr std::int64_t kElements = 4000;
  const std::int64_t step =
      std::ssize(values) <= kElements
          ? 1
          : std::ssize(values) / kElements / 2 * 2 + 1;  // covers all channels
  double largest = 0;
  double squares = 0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < std::ssize(values); i += step, ++count) {
    const double wanted = expected(i);
    const double got = static_cast<float>(values[i]);
    squares += wanted * wanted;
    largest = std::isnan(got) ? INFINITY : std::max(largest, std::abs(got - wanted));
  }
  return largest / std::sqrt(squares / static_cast<double>(count));
}

class Winograd : public ::testing::TestWithParam<WinogradCase> {};

TEST_P(Winograd, MatchesTheConvolutionAndItsGradients) {
  Case<float> c(spec_of(GetParam()));
  EXPECT_LT(difference(c.output(), [&](std::int64_t i) { return c.output_at(i); }), 2e-5);
  EXPECT_LT(difference(c.data_gradient(), [&](std::int64_t i) { return c.data_gradient_at(i); }),
            2e-5);
  EXPECT_LT(difference(c.parameter_gradients(),
                       [&](std::int64_t i) { return c.parameter_gradient_at(i); }),
            2e-5);
}

TEST(WinogradWithoutBias, MatchesTheConvolutionAndItsGradients) {
  Conv2DSpec spec = spec_of({"", 3, 5, 7, 16, 32, 1, 1, 1, 1});
  spec.bias = false;
  Case<float> c(spec);
  EXPECT_LT(difference(c.output(), [&](std::int64_t i) { return c.output_at(i); }), 2e-5);
  EXPECT_LT(difference(c.parameter_gradients(),
                       [&](std::int64_t i) { return c.parameter_gradient_at(i); }),
            2e-5);
}

TEST_P(Winograd, RoundsOnlyTheResultToBfloat16) {
  constexpr double kRounding = 1.0 / 256;  // for the largest elements, a few root mean squares
  Case<Eigen::bfloat16> c(spec_of(GetParam(), true));
  EXPECT_LT(difference(c.output(), [&](std::int64_t i) { return c.output_at(i); }), 6 * kRounding);
  EXPECT_LT(difference(c.data_gradient(), [&](std::int64_t i) { return c.data_gradient_at(i); }),
            6 * kRounding);
  EXPECT_LT(difference(c.parameter_gradients(),
                       [&](std::int64_t i) { return c.parameter_gradient_at(i); }),
            2e-5);
}

// oneDNN's products are bitwise independent of the block size only with AVX-512.
TEST_P(Winograd, HasTheSameResultsOnTwoThreads) {
  const auto results = [](int threads) {
    const int before = thread_budget();
    set_thread_budget(threads);
    Case<float> c(spec_of(GetParam()));
    std::vector<float> all = c.output();
    for (const std::vector<float>& more : {c.data_gradient(), c.parameter_gradients()})
      all.insert(all.end(), more.begin(), more.end());
    set_thread_budget(before);
    return all;
  };
  const std::vector<float> one = results(1);
  const std::vector<float> two = results(2);
  if (!why_no_bfloat16()) {
    EXPECT_EQ(two, one);
  }
  EXPECT_LT(difference(two, [&](std::int64_t i) { return one[static_cast<std::size_t>(i)]; }),
            2e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Winograd,
    ::testing::Values(
        WinogradCase{"whole_tiles", 2, 8, 8, 32, 16, 1, 1, 1, 1},
        WinogradCase{"parts_of_tiles", 3, 5, 7, 16, 32, 1, 1, 1, 1},
        WinogradCase{"no_padding", 2, 9, 6, 16, 16, 0, 0, 0, 0},
        WinogradCase{"uneven_padding", 2, 6, 5, 16, 16, 0, 1, 1, 0},
        WinogradCase{"wide_padding", 2, 4, 4, 16, 16, 2, 2, 2, 2},
        WinogradCase{"one_sided_padding", 2, 6, 7, 16, 16, 2, 0, 0, 2},
        WinogradCase{"one_pixel", 1, 1, 1, 16, 16, 1, 1, 1, 1},
        WinogradCase{"blocks_of_tiles", 9, 30, 29, 16, 16, 1, 1, 1, 1},  // the last is shorter
        WinogradCase{"large_kernel", 2, 5, 5, 272, 272, 1, 1, 1, 1},     // in blocks of outputs
        WinogradCase{"blocks_of_both", 3, 34, 33, 272, 320, 1, 1, 1, 1}),
    [](const auto& each) { return each.param.name; });

TEST(WinogradIsProfitable, ForManyChannelsAndTiles) {
  const auto pays_for = [](WinogradCase c, Pass pass = Pass::forward) {
    return is_profitable(spec_of(c), pass, memory::data_type::f32);
  };
  const WinogradCase usual{"", 32, 32, 32, 64, 64, 1, 1, 1, 1};
  for (const Pass pass : {Pass::forward, Pass::data_gradient, Pass::kernel_gradient})
    EXPECT_TRUE(pays_for(usual, pass));
  EXPECT_FALSE(pays_for({"one tile, large kernel", 1, 4, 4, 256, 256, 1, 1, 1, 1}));
  EXPECT_FALSE(pays_for({"few pixels of a tile", 32, 1, 1, 64, 64, 1, 1, 1, 1}));
  EXPECT_FALSE(pays_for({"a part of a vector", 32, 32, 32, 64, 65, 1, 1, 1, 1}));
}

TEST(WinogradIsProfitable, OnlyForOneGroupOfThreeByThreeWithoutStride) {
  const auto pays_for = [](const Conv2DSpec& spec) {
    return is_profitable(spec, Pass::forward, memory::data_type::f32);
  };
  const Conv2DSpec usual = spec_of({"", 32, 32, 32, 64, 64, 1, 1, 1, 1});
  Conv2DSpec other = usual;
  other.groups = 2;
  EXPECT_FALSE(pays_for(other));
  other = usual;
  other.window.stride_width = 2;
  EXPECT_FALSE(pays_for(other));
  other = usual;
  other.window.kernel_height = 1;
  EXPECT_FALSE(pays_for(other));
}

}  // namespace
}  // namespace lockstep::inline v0::model::cpu::winograd
