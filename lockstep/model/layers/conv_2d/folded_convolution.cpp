#include "lockstep/model/layers/conv_2d/folded_convolution.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/cuda/context.h"

namespace lockstep::inline v0::model::cuda {
namespace {

std::int64_t divided_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

std::int64_t image_elements(const Conv2DSpec& spec) {
  return spec.batch * spec.window.height * spec.window.width * spec.window.channels;
}

std::int64_t kernel_elements(const Conv2DSpec& spec) {
  const WindowGeometry& w = spec.window;
  return spec.filters * w.kernel_height * w.kernel_width * w.channels;
}

}  // namespace

bool can_be_folded(const Conv2DSpec& spec, std::int64_t channels, ConvolutionPass pass) {
  constexpr std::int64_t kMaxChannels = 4;
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();  // indices in kernels
  const WindowGeometry& w = spec.window;
  const bool is_stem = spec.groups == 1 && !w.is_dilated() && channels <= kMaxChannels &&
                       w.stride_height > 1 && w.stride_width > 1 &&
                       w.kernel_height >= w.stride_height && w.kernel_width >= w.stride_width;
  if (!is_stem || pass == ConvolutionPass::backward_data) return false;
  const Conv2DSpec folded = with_folded_image(spec, channels, Precision::bfloat16);
  const std::int64_t rows = spec.batch * folded.window.height;
  return std::max({rows, image_elements(spec) / spec.batch, image_elements(folded) / spec.batch,
                   kernel_elements(folded)}) <= kMax;
}

Conv2DSpec with_folded_image(const Conv2DSpec& spec, std::int64_t channels, Precision precision) {
  const WindowGeometry& w = spec.window;
  const auto pack = static_cast<std::int64_t>(16 / element_bytes(precision));
  Conv2DSpec folded = spec;
  WindowGeometry& f = folded.window;
  f.kernel_height = divided_up(w.kernel_height, w.stride_height);
  f.kernel_width = divided_up(w.kernel_width, w.stride_width);
  f.height = w.output_height + f.kernel_height - 1;
  f.width = w.output_width + f.kernel_width - 1;
  f.channels = divided_up(w.stride_height * w.stride_width * channels, pack) * pack;
  f.stride_height = f.stride_width = 1;
  f.pad_top = f.pad_bottom = f.pad_left = f.pad_right = 0;
  return folded;
}

FoldedConvolution::FoldedConvolution(Context& context, const Conv2DSpec& spec,
                                     std::int64_t channels, ConvolutionPass pass,
                                     std::unique_ptr<ConvolutionEngine> engine)
    : context_(context),
      spec_(spec),
      folded_(with_folded_image(spec, channels, context.options().precision)),
      folding_{.window = spec.window, .channels = channels, .folded_window = folded_.window},
      pass_(pass),
      engine_(std::move(engine)) {
  LOCKSTEP_CHECK(can_be_folded(spec, channels, pass));
  ScratchPlan plan;
  plan.add(view(nullptr, image_elements(folded_)).size_bytes());
  kernel_at_ = plan.add(view(nullptr, kernel_elements(folded_)).size_bytes());
  own_bytes_ = plan.add(0);
}

std::vector<ConvolutionAlgorithm> FoldedConvolution::proposals() {
  std::vector<ConvolutionAlgorithm> all = engine_->proposals();
  for (ConvolutionAlgorithm& algorithm : all) algorithm.folded = true;
  return all;
}

bool FoldedConvolution::select(const ConvolutionAlgorithm& algorithm) {
  if (!algorithm.folded) return false;
  ConvolutionAlgorithm its = algorithm;
  its.folded = false;
  return engine_->select(its);
}

void FoldedConvolution::run(const ConvolutionArrays& arrays, void* workspace) {
  auto* const memory = static_cast<std::byte*>(workspace);
  const TensorView kernel = view(arrays.kernel, kernel_elements(spec_));
  const TensorView folded_image = view(memory, image_elements(folded_));
  const TensorView folded_kernel = view(memory + kernel_at_, kernel_elements(folded_));
  fold_image(view(arrays.input, image_elements(spec_)), folding_, spec_.batch, folded_image,
             context_.native());
  if (pass_ == ConvolutionPass::forward)
    fold_kernel(kernel, folding_, folded_kernel, context_.native());
  ConvolutionArrays folded_arrays = arrays;
  folded_arrays.input = folded_image.data();
  folded_arrays.kernel = folded_kernel.data();
  engine_->run(folded_arrays, memory + own_bytes_);
  if (pass_ == ConvolutionPass::backward_filter)
    unfold_kernel(folded_kernel, folding_, kernel, context_.native());
}

TensorView FoldedConvolution::view(void* data, std::int64_t elements) const {
  return {data, static_cast<std::size_t>(elements), context_.options().precision};
}

}  // namespace lockstep::inline v0::model::cuda
