#include "lockstep/model/layers/conv_2d/padded_convolution.h"

#include <utility>

#include "lockstep/model/cuda/bias.h"
#include "lockstep/model/cuda/context.h"

namespace lockstep::inline v0::model::cuda {

bool has_uneven_zeros(const WindowGeometry& window) {
  return window.pad_top != window.pad_bottom || window.pad_left != window.pad_right;
}

Conv2DSpec with_zeros_in_image(Conv2DSpec spec) {
  WindowGeometry& w = spec.window;
  w.height += w.pad_top + w.pad_bottom;
  w.width += w.pad_left + w.pad_right;
  w.pad_top = w.pad_bottom = w.pad_left = w.pad_right = 0;
  return spec;
}

PaddedConvolution::PaddedConvolution(Context& context, const Conv2DSpec& spec, ConvolutionPass pass,
                                     std::unique_ptr<ConvolutionEngine> engine)
    : context_(context), spec_(spec), pass_(pass), engine_(std::move(engine)) {
  const WindowGeometry w = with_zeros_in_image(spec).window;
  elements_ = static_cast<std::size_t>(spec.batch * w.height * w.width * w.channels);
  ScratchPlan plan;
  plan.add(elements_ * element_bytes(context.options().precision));
  own_bytes_ = plan.add(0);
}

void PaddedConvolution::run(const ConvolutionArrays& arrays, void* workspace) {
  const WindowGeometry& w = spec_.window;
  const Precision precision = context_.options().precision;
  const TensorView image(arrays.input,
                         static_cast<std::size_t>(spec_.batch * w.height * w.width * w.channels),
                         precision);
  const TensorView copy(workspace, elements_, precision);
  const bool writes_image = pass_ == ConvolutionPass::backward_data;
  if (!writes_image || spec_.adds_input_gradient)
    pad_image(image, w, spec_.batch, copy, context_.native());
  ConvolutionArrays padded = arrays;
  padded.input = copy.data();
  engine_->run(padded, static_cast<std::byte*>(workspace) + own_bytes_);
  if (writes_image) crop_image(copy, w, spec_.batch, image, context_.native());
}

}  // namespace lockstep::inline v0::model::cuda
