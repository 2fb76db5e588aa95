// The three passes of convolutions of random shapes agree with each other: y = K x is linear in x
// and in K, so for any d the products <d, y>, <x, gradient of x> and <K, gradient of K> are equal.
// Finds implementations of oneDNN that are wrong for some shapes, or that write outside of their
// arrays.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <span>
#include <vector>

#include "lockstep/base/float16.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

struct Shapes {
  std::int64_t batch, height, width, channels, filters, kernel, strides, groups;

  friend std::ostream& operator<<(std::ostream& out, const Shapes& s) {
    return out << s.batch << " images of " << s.height << "x" << s.width << "x" << s.channels
               << ", " << s.filters << " filters of " << s.kernel << "x" << s.kernel << ", strides "
               << s.strides << ", groups " << s.groups;
  }
};

Shapes random_shapes(std::mt19937& generator) {
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(generator);
  };
  const std::int64_t kernels[] = {1, 1, 1, 1, 2, 3, 3, 5};
  Shapes s{};
  s.batch = draw(1, 5);
  s.kernel = kernels[draw(0, 7)];
  s.height = s.kernel + draw(0, 17);
  s.width = s.kernel + draw(0, 17);
  s.strides = draw(1, 3);
  s.groups = draw(0, 5) == 0 ? draw(2, 4) : 1;
  s.channels = s.groups * draw(1, 70 / s.groups);
  s.filters = s.groups * draw(1, 70 / s.groups);
  return s;
}

// An array between margins that must not be written.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes), lines_(2 * kMargin + bytes / kLine + 1) {
    std::memset(lines_.data(), kUntouched, lines_.size() * kLine);
  }
  std::byte* data() { return lines_[kMargin].bytes; }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> bytes() { return {data(), bytes_}; }
  bool is_intact() const {
    const std::byte* const all = lines_.front().bytes;
    for (std::size_t i = 0; i < lines_.size() * kLine; ++i) {
      const bool is_margin = i < kMargin * kLine || i >= kMargin * kLine + bytes_;
      if (is_margin && all[i] != std::byte{kUntouched}) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kMargin = 256;  // lines
  static constexpr int kUntouched = 0x5a;
  struct alignas(kLine) Line {
    std::byte bytes[kLine];
  };
  std::size_t bytes_;
  std::vector<Line> lines_;
};

// Values of the type that a backend computes in.
class Array {
 public:
  Array(std::int64_t count, Precision type)
      : count_(static_cast<std::size_t>(count)),
        type_(type),
        memory_(count_ * element_bytes(type)) {}

  TensorView view() { return {memory_.data(), count_, type_}; }
  std::span<float> floats() { return {reinterpret_cast<float*>(memory_.data()), count_}; }
  bool is_intact() const { return memory_.is_intact(); }

  void randomize(std::mt19937& generator) {
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < count_; ++i) set(i, normal(generator));
  }
  double at(std::size_t i) {
    if (type_ == Precision::float32) return static_cast<double>(floats()[i]);
    float wide = 0;
    widen(view().as<BFloat16>().subspan(i, 1), std::span(&wide, 1));
    return static_cast<double>(wide);
  }
  double dot(Array& other) {
    double sum = 0;
    for (std::size_t i = 0; i < count_; ++i) sum += at(i) * other.at(i);
    return sum;
  }

 private:
  void set(std::size_t i, float value) {
    if (type_ == Precision::float32) {
      floats()[i] = value;
    } else {
      narrow(std::span(&value, 1), view().as<BFloat16>().subspan(i, 1));
    }
  }

  std::size_t count_;
  Precision type_;
  Guarded memory_;
};

void expect_passes_agree(const Shapes& s, Precision precision, std::mt19937& generator) {
  Network network({s.height, s.width, s.channels});
  network.add(
      Conv2D({.filters = s.filters,
              .kernel = s.kernel,
              .strides = s.strides,
              .padding = s.kernel > 1 && s.batch % 2 == 0 ? Padding::symmetric : Padding::valid,
              .groups = s.groups,
              .use_bias = false}));
  const auto backend = make_backend(device::Device{}, {.precision = precision});
  const CompileContext context{.name = "conv2d",
                               .batch = s.batch,
                               .inputs = {network.input_shape()},
                               .output = network.output_shape(),
                               .training = true};
  const auto operation = network.nodes().back().layer->compile(context, *backend);

  const std::int64_t pixels = s.batch * s.height * s.width * s.channels;
  const std::int64_t outputs = s.batch * element_count(network.output_shape());
  const std::int64_t weights = s.filters * s.kernel * s.kernel * s.channels / s.groups;
  Array x(pixels, precision);
  Array d(outputs, precision);
  Array kernel(weights, precision);
  for (Array* const given : {&x, &d, &kernel}) given->randomize(generator);
  Array y(outputs, precision);
  Array x_gradient(pixels, precision);
  Array kernel_gradient(weights, Precision::float32);
  Guarded scratch(operation->needs().scratch_bytes);
  Guarded saved(operation->needs().saved_bytes);
  Operands o;
  o.inputs = {x.view()};
  o.output = y.view();
  o.output_gradient = d.view();
  o.input_gradients = {x_gradient.view()};
  o.weights = {kernel.view()};
  if (precision == Precision::float32) o.parameters = {kernel.floats()};
  o.parameter_gradients = {kernel_gradient.floats()};
  o.scratch = scratch.bytes();
  o.saved = saved.bytes();
  operation->forward(o, {.training = true});
  operation->backward(o, {.training = true});

  // Each rounding of an output is off by up to 1/512 of it in bfloat16.
  const double tolerance = precision == Precision::float32 ? 1e-4 : 1.0 / 32;
  const double size = std::sqrt(y.dot(y));
  EXPECT_NEAR(x.dot(x_gradient), d.dot(y), tolerance * size) << s;
  EXPECT_NEAR(kernel.dot(kernel_gradient), d.dot(y), tolerance * size) << s;
  EXPECT_TRUE(x.is_intact() && d.is_intact() && kernel.is_intact() && y.is_intact() &&
              x_gradient.is_intact() && kernel_gradient.is_intact() && scratch.is_intact() &&
              saved.is_intact())
      << "written outside of an array: " << s;
}

class ConvolutionPasses : public ::testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (GetParam() == Precision::float32) return;
    if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  }
  static void of_random_shapes(int count) {
    std::mt19937 generator(static_cast<unsigned>(count));
    for (int i = 0; i < count && !HasFailure(); ++i)
      expect_passes_agree(random_shapes(generator), GetParam(), generator);
  }
};

TEST_P(ConvolutionPasses, AgreeForShapesThatOneDnnComputedWrong) {
  std::mt19937 generator(1);
  for (const Shapes& shapes :
       {Shapes{3, 6, 14, 4, 17, 1, 2, 1}, Shapes{1, 10, 16, 6, 28, 1, 2, 1},
        Shapes{4, 2, 15, 14, 7, 1, 1, 1}, Shapes{5, 4, 18, 6, 18, 1, 2, 1},
        Shapes{4, 5, 1, 66, 12, 1, 1, 1}, Shapes{4, 5, 2, 32, 33, 2, 3, 1},
        Shapes{2, 2, 10, 22, 69, 1, 2, 1}, Shapes{2, 14, 12, 48, 65, 2, 3, 1},
        Shapes{5, 9, 9, 54, 25, 5, 3, 1}, Shapes{5, 18, 5, 3, 36, 3, 3, 1},
        Shapes{3, 18, 5, 19, 38, 5, 2, 1}, Shapes{1, 16, 3, 8, 35, 2, 2, 1}})
    expect_passes_agree(shapes, GetParam(), generator);
}

TEST_P(ConvolutionPasses, AgreeForRandomShapes) { of_random_shapes(30); }

class LongConvolutionPasses : public ConvolutionPasses {};

TEST_P(LongConvolutionPasses, AgreeForRandomShapes) { of_random_shapes(5'000); }

const auto kTypes = ::testing::Values(Precision::float32, Precision::bfloat16);
std::string name_of_type(const ::testing::TestParamInfo<Precision>& type) {
  return std::string(to_string(type.param));
}
INSTANTIATE_TEST_SUITE_P(Types, ConvolutionPasses, kTypes, name_of_type);
INSTANTIATE_TEST_SUITE_P(Types, LongConvolutionPasses, kTypes, name_of_type);

}  // namespace
}  // namespace lockstep::inline v0::model
