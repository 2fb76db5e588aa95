// Convolutions of folded images equal those of the images, with every algorithm. On simulated GPUs
// and on a real one.
#include "lockstep/model/layers/conv_2d/folded_convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/device/cuda/cuda.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/cuda/elementwise.h"
#include "lockstep/model/cuda/trial_timer.h"
#include "lockstep/model/layers/conv_2d/convolution_choice.h"
#include "lockstep/model/layers/conv_2d/graph_convolution.h"
#include "lockstep/model/layers/conv_2d/legacy_convolution.h"
#include "tests/model/support/sides.h"

namespace lockstep::inline v0::model::cuda {
namespace {

struct StemCase {
  std::string name;
  std::int64_t batch;
  Shape image;
  Extent2D kernel;
  Extent2D strides;
  Padding padding;

  friend std::ostream& operator<<(std::ostream& stream, const StemCase& one) {
    return stream << one.name;
  }
};

const StemCase kStems[] = {
    {"seven_by_seven", 2, {12, 10, 3}, 7, 2, Padding::symmetric},
    {"three_by_three", 3, {8, 8, 3}, 3, 2, Padding::symmetric},
    {"four_by_four", 2, {8, 6, 4}, 4, 2, Padding::same},
    {"uneven_zeros", 2, {7, 5, 3}, 4, 2, Padding::same},
    {"no_zeros", 2, {9, 7, 2}, 3, 2, Padding::valid},
    {"one_image_of_one_channel", 1, {6, 6, 1}, 5, 2, Padding::same},
    {"other_strides", 2, {11, 8, 3}, {5, 3}, {3, 2}, Padding::valid},
    {"patches", 2, {8, 8, 3}, 4, 4, Padding::valid},
};

constexpr std::int64_t kFilters = 8;

Conv2DSpec spec_of(const StemCase& stem, Precision precision) {
  Shape in_memory = stem.image;
  in_memory[2] = std::max(in_memory[2], min_channels(precision));
  return {.batch = stem.batch,
          .window = window_geometry(in_memory, stem.kernel, stem.strides, stem.padding),
          .filters = kFilters,
          .bias = false};
}

using Setting = std::tuple<StemCase, Precision>;

class FoldedConvolutionTest : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }
};

// An array in the memory of a GPU.
class Array {
 public:
  // Fills rows with `channels` random numbers, followed by zeros up to `width`.
  Array(Context& context, std::int64_t rows, std::int64_t channels, std::int64_t width)
      : context_(context),
        memory_(context.allocator().allocate(static_cast<std::size_t>(rows * width) *
                                             element_bytes(context.options().precision))),
        size_(static_cast<std::size_t>(rows * width)) {
    const auto count = static_cast<std::size_t>(rows * channels);
    const device::Buffer wide = context.allocator().allocate(count * sizeof(float));
    device::HostView host(wide.as<float>(), context.stream());
    std::ranges::copy(numbers(count, count), host.values().begin());
    host.write_back(context.stream());
    convert_channels(wide.as<float>(), channels, view(), width, context.native());
    context.stream().synchronize();
  }

  TensorView view() const { return {memory_.data(), size_, context_.options().precision}; }
  void* data() const { return memory_.data(); }

  Values values() const {
    const device::Buffer wide = context_.allocator().allocate(size_ * sizeof(float));
    convert(view(), wide.as<float>(), context_.native());
    device::HostView host(wide.as<float>(), context_.stream());
    return {host.values().begin(), host.values().end()};
  }

 private:
  Context& context_;
  device::Buffer memory_;
  std::size_t size_;
};

Values result_of(Context& context, ConvolutionEngine& engine, const ConvolutionArrays& arrays,
                 const Array& written) {
  fill_randomly(written.view(), context.native());  // previous content is not a result
  const device::Buffer workspace = context.allocator().allocate(engine.workspace_bytes());
  engine.run(arrays, workspace.data());
  context.stream().synchronize();  // `written` uses another stream
  return written.values();
}

TEST_P(FoldedConvolutionTest, MatchesTheConvolution) {
  const auto& [stem, precision] = GetParam();
  constexpr std::size_t kMaxTried = 8;
  const double tolerance = precision == Precision::float32    ? 1e-5
                           : precision == Precision::bfloat16 ? 0.01
                                                              : 2e-3;
  const device::cuda::DeviceScope scope(0);
  const Conv2DSpec spec = spec_of(stem, precision);
  const WindowGeometry& w = spec.window;
  const std::int64_t channels = stem.image[2];
  Context plain(0, {.precision = precision, .deterministic = true});
  Context context(0, {.precision = precision});
  const Array image(context, spec.batch * w.height * w.width, channels, w.channels);
  const Array kernel(context, kFilters * w.kernel_height * w.kernel_width, channels, w.channels);
  const Array output(context, spec.batch * w.output_height * w.output_width, kFilters, kFilters);
  const ConvolutionArrays arrays{image.data(), kernel.data(), output.data()};
  const Conv2DSpec folded = with_folded_image(spec, channels, precision);
  for (const ConvolutionPass pass : {ConvolutionPass::forward, ConvolutionPass::backward_filter}) {
    ASSERT_TRUE(can_be_folded(spec, channels, pass));
    const Array& written = pass == ConvolutionPass::forward ? output : kernel;
    const auto engine = choose_convolution(plain, spec, channels, pass);
    const Values expected = result_of(plain, *engine, arrays, written);
    int tried = 0;
    const auto try_all = [&](std::unique_ptr<ConvolutionEngine> of_image) {
      FoldedConvolution convolution(context, spec, channels, pass, std::move(of_image));
      std::vector<ConvolutionAlgorithm> algorithms = convolution.proposals();
      algorithms.resize(std::min(algorithms.size(), kMaxTried));
      for (const ConvolutionAlgorithm& algorithm : algorithms)
        succeeds([&] {
          if (!convolution.select(algorithm)) return false;
          const Values found = result_of(context, convolution, arrays, written);
          EXPECT_LE(error(found, expected), tolerance)
              << static_cast<int>(pass) << ", " << algorithm.number << " of " << algorithm.math;
          ++tried;
          return true;
        });
      return true;
    };
    succeeds([&] { return try_all(std::make_unique<GraphConvolution>(context, folded, pass)); });
    succeeds([&] { return try_all(std::make_unique<LegacyConvolution>(context, folded, pass)); });
    EXPECT_GT(tried, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Stems, FoldedConvolutionTest,
                         testing::Combine(testing::ValuesIn(kStems),
                                          testing::Values(Precision::float32, Precision::bfloat16,
                                                          Precision::float16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" +
                                  to_string(std::get<1>(test.param));
                         });

TEST(FoldedConvolution, IsForFewChannelsAndLongStrides) {
  const auto can = [](std::int64_t channels, Extent2D kernel, Extent2D strides,
                      std::int64_t groups = 1) {
    const Conv2DSpec spec{
        .batch = 2,
        .window = window_geometry({8, 8, channels}, kernel, strides, Padding::same),
        .filters = 8,
        .groups = groups};
    EXPECT_FALSE(can_be_folded(spec, channels, ConvolutionPass::backward_data));
    return can_be_folded(spec, channels, ConvolutionPass::forward);
  };
  EXPECT_TRUE(can(4, 3, 2));
  EXPECT_FALSE(can(5, 3, 2));
  EXPECT_FALSE(can(4, 3, 1));
  EXPECT_FALSE(can(4, 3, {1, 2}));
  EXPECT_FALSE(can(4, 1, 2)) << "it reads a quarter of the pixels";
  EXPECT_FALSE(can(4, 3, 2, 2));
}

}  // namespace
}  // namespace lockstep::inline v0::model::cuda
