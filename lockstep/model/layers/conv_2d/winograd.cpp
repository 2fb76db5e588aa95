#include "lockstep/model/layers/conv_2d/winograd.h"

#include <Eigen/Core>
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/descriptors.h"
#include "lockstep/model/cpu/lanes.h"

namespace lockstep::inline v0::model::cpu::winograd {
namespace {

// Consecutive arrays in scratch memory, each aligned to a cache line.
class Scratch {
 public:
  explicit Scratch(std::span<std::byte> memory) : memory_(memory) {}
  Matrices matrices(std::int64_t rows, std::int64_t columns) {
    const std::size_t bytes = size(rows, columns);
    auto* const data = reinterpret_cast<float*>(memory_.data());
    memory_ = memory_.subspan(bytes);
    return {data, rows, columns};
  }
  std::span<std::byte> rest() const { return memory_; }
  static std::size_t size(std::int64_t rows, std::int64_t columns) {
    constexpr std::size_t kLine = 64;
    const auto bytes = static_cast<std::size_t>(kPlaces * rows * columns) * sizeof(float);
    return (bytes + kLine - 1) / kLine * kLine;
  }

 private:
  std::span<std::byte> memory_;
};

memory::desc matrices_of(std::int64_t rows, std::int64_t columns, bool transposed = false) {
  return {{kPlaces, rows, columns},
          memory::data_type::f32,
          transposed ? memory::format_tag::acb : memory::format_tag::abc};
}

Primitive make_product(Context& context, const ProductArrays& arrays, bool adds) {
  dnnl::primitive_attr attributes = user_scratchpad();
  if (adds) {
    dnnl::post_ops operations;
    operations.append_sum(1.0f);
    attributes.set_post_ops(operations);
  }
  const auto product = describe_product(context.engine, arrays, attributes);
  return {context,
          dnnl::matmul(product),
          {{DNNL_ARG_SRC, arrays.source},
           {DNNL_ARG_WEIGHTS, arrays.weights},
           {DNNL_ARG_DST, arrays.target}},
          product.scratchpad_desc()};
}

// Maximum bytes of a block of tiles: per thread; when summing over tiles, where longer sums are
// faster; and when the kernel is transformed again for each block.
constexpr std::int64_t kTileBytes = 640 << 10;
constexpr std::int64_t kSummedTileBytes = 2 << 20;
constexpr std::int64_t kManyTileBytes = 16 << 20;
// Maximum bytes of a transformed kernel; a larger one is transformed by blocks of outputs.
constexpr std::int64_t kKernelBytes = 10 << 20;
constexpr std::int64_t kOutputsOfPart = 64;

std::int64_t inputs_of(const Conv2DSpec& spec, Pass pass) {
  return pass == Pass::data_gradient ? spec.filters : spec.window.channels;
}
std::int64_t outputs_of(const Conv2DSpec& spec, Pass pass) {
  return pass == Pass::data_gradient ? spec.window.channels : spec.filters;
}

// The tiles of the output, or of the input gradient.
Grid grid_of(const Conv2DSpec& spec, Pass pass) {
  const WindowGeometry& w = spec.window;
  const bool of_input = pass == Pass::data_gradient;
  const std::int64_t rows = ((of_input ? w.height : w.output_height) + kTile - 1) / kTile;
  const std::int64_t columns = ((of_input ? w.width : w.output_width) + kTile - 1) / kTile;
  return {.rows = rows, .columns = columns, .tiles = spec.batch * rows * columns};
}

// `threads` only change blocks whose results do not depend on each other.
Blocks blocks_of(const Conv2DSpec& spec, Pass pass, const Grid& grid, int threads) {
  constexpr std::int64_t kFewest = 16;
  LOCKSTEP_CHECK(grid.tiles > 0);
  const std::int64_t matrix = kPlaces * std::int64_t{sizeof(float)};
  const bool is_large = matrix * spec.window.channels * spec.filters > kKernelBytes;
  const std::int64_t bytes = is_large                        ? kManyTileBytes
                             : pass == Pass::kernel_gradient ? kSummedTileBytes
                                                             : threads * kTileBytes;
  const std::int64_t most =
      std::max(kFewest, bytes / (matrix * (spec.window.channels + spec.filters)));
  const std::int64_t blocks = (grid.tiles + most - 1) / most;
  std::int64_t part = outputs_of(spec, pass);
  if (is_large)
    for (std::int64_t p = kLanes; p <= kOutputsOfPart; p += kLanes)
      if (outputs_of(spec, pass) % p == 0) part = p;
  return {.tiles = (grid.tiles + blocks - 1) / blocks, .outputs = part};
}

// Costs that is_profitable() compares, in multiplications of a float32 matrix product: the
// transforms of a patch and of a tile per channel, and that of a kernel of one channel, or its
// gradient. Measured on one core of an AMD EPYC (Zen 4) for 16 to 512 channels and images of 4x4 to
// 56x56, and with AVX2, whose 16 registers do not hold what a transform needs, on one of a Zen 3.
constexpr double kCostOfRegisters = kLanes < 16 ? 1.6 : 1;
constexpr double kCostOfPatch = 600 * kCostOfRegisters;
constexpr double kCostOfTile = 400 * kCostOfRegisters;
constexpr double kCostOfKernel = 500 * kCostOfRegisters;
constexpr double kCostOfKernelGradient = 250 * kCostOfRegisters;

double cost_of(const Conv2DSpec& spec, Pass pass, double lanes) {
  const Grid grid = grid_of(spec, pass);
  const Blocks blocks = blocks_of(spec, pass, grid, 1);
  const auto tiles = static_cast<double>(grid.tiles);
  const auto inputs = static_cast<double>(inputs_of(spec, pass));
  const auto outputs = static_cast<double>(outputs_of(spec, pass));
  const std::int64_t tile_blocks = (grid.tiles + blocks.tiles - 1) / blocks.tiles;
  const std::int64_t output_blocks = outputs_of(spec, pass) / blocks.outputs;
  const bool repeats = tile_blocks > 1 && output_blocks > 1;
  const bool is_gradient = pass == Pass::kernel_gradient;
  const auto patches = static_cast<double>(repeats && is_gradient ? output_blocks : 1);
  const auto kernels = static_cast<double>(repeats && !is_gradient ? tile_blocks : 1);
  const double transforms =
      tiles * (kCostOfPatch * inputs * patches + kCostOfTile * outputs) +
      (is_gradient ? kCostOfKernelGradient : kCostOfKernel) * inputs * outputs * kernels;
  return tiles * kPlaces * inputs * outputs + transforms * lanes / kLanes;
}

// The speedup of oneDNN's convolution of `type` over float32: on a Zen 4, and with AMX in a step of
// resnet18 on an Intel Xeon (Sapphire Rapids).
double speed_of_onednn(Pass pass, memory::data_type type) {
  if (type == memory::data_type::f32 || !has_instructions(dnnl::cpu_isa::avx512_core_bf16))
    return 1;
  if (pass == Pass::kernel_gradient)
    return has_instructions(dnnl::cpu_isa::avx512_core_amx) ? 1.5 : 1.8;
  if (!has_instructions(dnnl::cpu_isa::avx512_core_amx)) return 2.1;
  return pass == Pass::forward ? 5 : 3.5;
}

}  // namespace

bool is_profitable(const Conv2DSpec& spec, Pass pass, memory::data_type type) {
  const WindowGeometry& w = spec.window;
  if (spec.batch == 0 || spec.groups != 1 || w.kernel_height != kKernel ||
      w.kernel_width != kKernel || w.stride_height != 1 || w.stride_width != 1 || w.is_dilated() ||
      w.channels % kLanes != 0 || spec.filters % kLanes != 0)
    return false;
  const auto direct = static_cast<double>(spec.batch * w.output_height * w.output_width * kKernel *
                                          kKernel * w.channels * spec.filters);
  return cost_of(spec, pass, static_cast<double>(lanes_of_onednn())) <
         direct / speed_of_onednn(pass, type);
}

Product::Product(Context& context, const Conv2DSpec& spec, Pass pass)
    : spec_(spec),
      pass_(pass),
      grid_(grid_of(spec, pass)),
      inputs_(inputs_of(spec, pass)),
      outputs_(outputs_of(spec, pass)),
      blocks_(blocks_of(spec, pass, grid_, thread_budget())) {
  product_ =
      make_product(context,
                   {matrices_of(blocks_.tiles, inputs_), matrices_of(inputs_, blocks_.outputs),
                    matrices_of(blocks_.tiles, blocks_.outputs)},
                   false);
}

std::size_t Product::scratch_bytes() const {
  return Scratch::size(blocks_.tiles, inputs_) + Scratch::size(blocks_.tiles, blocks_.outputs) +
         Scratch::size(inputs_, blocks_.outputs) + product_.scratch_bytes();
}

void Product::run(const TensorView& images, const TensorView& kernel, const float* bias,
                  const TensorView& result, std::span<std::byte> scratch) {
  const auto run_as = [&]<typename T>(T* to) {
    run(static_cast<const T*>(images.data()), static_cast<const T*>(kernel.data()), bias, to,
        scratch);
  };
  if (images.type() == Precision::float32)
    run_as(static_cast<float*>(result.data()));
  else
    run_as(static_cast<Eigen::bfloat16*>(result.data()));
}

template <typename T>
void Product::run(const T* images, const T* kernel, const float* bias, T* result,
                  std::span<std::byte> scratch) {
  const WindowGeometry& w = spec_.window;
  const bool forward = pass_ == Pass::forward;
  const Images<const T> from =
      forward ? Images<const T>{images, w.height, w.width, inputs_, -w.pad_top, -w.pad_left}
              : Images<const T>{images,  w.output_height,           w.output_width,
                                inputs_, w.pad_top - (kKernel - 1), w.pad_left - (kKernel - 1)};
  const Images<T> to = forward ? Images<T>{result, w.output_height, w.output_width, spec_.filters}
                               : Images<T>{result, w.height, w.width, w.channels};
  Scratch arrays(scratch);
  const Matrices patches = arrays.matrices(blocks_.tiles, inputs_);
  const Matrices tiles = arrays.matrices(blocks_.tiles, blocks_.outputs);
  const Matrices kernels = arrays.matrices(inputs_, blocks_.outputs);
  product_.place(DNNL_ARG_SRC, patches.data);
  product_.place(DNNL_ARG_WEIGHTS, kernels.data);
  product_.place(DNNL_ARG_DST, tiles.data);
  for (std::int64_t tile = 0; tile < grid_.tiles; tile += blocks_.tiles) {
    transform_patches(from, grid_, tile, patches);
    for (std::int64_t output = 0; output < outputs_; output += blocks_.outputs) {
      const bool is_transformed = tile > 0 && blocks_.outputs == outputs_;
      if (forward && !is_transformed)
        transform_kernel(kernel, output, kernels);
      else if (!is_transformed)
        transform_rotated_kernel(kernel, w.channels, output, kernels);
      product_.run(arrays.rest());
      write_tiles(tiles, grid_, tile, output, bias, forward && spec_.relu, to);
    }
  }
}

KernelGradient::KernelGradient(Context& context, const Conv2DSpec& spec)
    : spec_(spec),
      grid_(grid_of(spec, Pass::kernel_gradient)),
      blocks_(blocks_of(spec, Pass::kernel_gradient, grid_, 1)) {
  const std::int64_t channels = spec.window.channels;
  const ProductArrays arrays = {matrices_of(blocks_.outputs, blocks_.tiles, true),
                                matrices_of(blocks_.tiles, channels),
                                matrices_of(blocks_.outputs, channels)};
  first_product_ = make_product(context, arrays, false);
  next_product_ = make_product(context, arrays, true);
}

std::size_t KernelGradient::scratch_bytes() const {
  const std::int64_t channels = spec_.window.channels;
  return Scratch::size(blocks_.tiles, channels) + Scratch::size(blocks_.tiles, blocks_.outputs) +
         Scratch::size(blocks_.outputs, channels) +
         std::max(first_product_.scratch_bytes(), next_product_.scratch_bytes());
}

void KernelGradient::run(const TensorView& images, const TensorView& output_gradient,
                         float* kernel_gradient, float* bias_gradient,
                         std::span<std::byte> scratch) {
  const auto run_as = [&]<typename T>(const T* from) {
    run(from, static_cast<const T*>(output_gradient.data()), kernel_gradient, bias_gradient,
        scratch);
  };
  if (images.type() == Precision::float32)
    run_as(static_cast<const float*>(images.data()));
  else
    run_as(static_cast<const Eigen::bfloat16*>(images.data()));
}

template <typename T>
void KernelGradient::run(const T* images, const T* output_gradient, float* kernel_gradient,
                         float* bias_gradient, std::span<std::byte> scratch) {
  const WindowGeometry& w = spec_.window;
  const Images<const T> inputs = {images, w.height, w.width, w.channels, -w.pad_top, -w.pad_left};
  const Images<const T> gradients = {output_gradient, w.output_height, w.output_width,
                                     spec_.filters};
  Scratch arrays(scratch);
  const Matrices patches = arrays.matrices(blocks_.tiles, w.channels);
  const Matrices tiles = arrays.matrices(blocks_.tiles, blocks_.outputs);
  const Matrices sums = arrays.matrices(blocks_.outputs, w.channels);
  for (Primitive* product : {&first_product_, &next_product_}) {
    product->place(DNNL_ARG_SRC, tiles.data);
    product->place(DNNL_ARG_WEIGHTS, patches.data);
    product->place(DNNL_ARG_DST, sums.data);
  }
  for (std::int64_t filter = 0; filter < spec_.filters; filter += blocks_.outputs) {
    for (std::int64_t tile = 0; tile < grid_.tiles; tile += blocks_.tiles) {
      if (filter == 0 || blocks_.tiles < grid_.tiles)
        transform_patches(inputs, grid_, tile, patches);
      transform_tiles(gradients, grid_, tile, filter, tiles);
      (tile == 0 ? first_product_ : next_product_).run(arrays.rest());
    }
    write_kernel_gradient(sums, kernel_gradient + filter * kKernel * kKernel * w.channels);
  }
  if (bias_gradient != nullptr) sum_pixels(gradients, spec_.batch, bias_gradient);
}

}  // namespace lockstep::inline v0::model::cpu::winograd
