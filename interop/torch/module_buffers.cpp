#include "interop/torch/module_buffers.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <span>

#include "interop/torch/exchange.h"

namespace lockstep::torch {
namespace {

/// A view of the next `buffer.numel()` of `values`, shaped like `buffer`.
template <typename T>
at::Tensor next_view(std::vector<T>& values, std::size_t& position, const at::Tensor& buffer) {
  const at::Tensor view =
      at::from_blob(values.data() + position, buffer.sizes(), at::TensorOptions().dtype(c10::CppTypeToScalarType<T>()));
  position += static_cast<std::size_t>(buffer.numel());
  return view;
}

}  // namespace

ModuleBuffers::ModuleBuffers(strategy::Workers& workers, const NamedTensors& buffers, BufferSync sync)
    : workers_(workers), buffers_(buffers.pairs()), sync_(sync) {
  std::size_t values = 0, whole = 0;
  for (const auto& [name, buffer] : buffers_)
    (buffer.is_floating_point() ? values : whole) += static_cast<std::size_t>(buffer.numel());
  values_.resize(values + 1);
  whole_.resize(whole);
}

void ModuleBuffers::synchronize(double samples) {
  if (buffers_.empty() || sync_ == BufferSync::none || workers_.size() == 1) return;
  if (sync_ == BufferSync::broadcast) {
    broadcast_tensors(workers_, buffers_);
    return;
  }
  average(samples);
  take_largest();
}

// What a rank without samples has may be no number, so it is left out rather than multiplied by zero.
void ModuleBuffers::average(double samples) {
  const c10::NoGradGuard no_graph;
  std::size_t position = 0;
  for (const auto& [name, buffer] : buffers_) {
    if (!buffer.is_floating_point()) continue;
    at::Tensor view = next_view(values_, position, buffer);
    if (samples > 0)
      view.copy_(buffer).mul_(samples);
    else
      view.zero_();
  }
  values_.back() = static_cast<float>(samples);
  workers_.all_reduce(std::span(values_));
  if (values_.back() == 0) return;
  position = 0;
  for (const auto& [name, buffer] : buffers_)
    if (buffer.is_floating_point()) buffer.copy_(next_view(values_, position, buffer).div_(values_.back()));
}

void ModuleBuffers::take_largest() {
  if (whole_.empty()) return;
  const c10::NoGradGuard no_graph;
  std::size_t position = 0;
  for (const auto& [name, buffer] : buffers_)
    if (!buffer.is_floating_point()) next_view(whole_, position, buffer).copy_(buffer);
  workers_.all_reduce(std::span(whole_), allreduce::ReduceOp::max);
  position = 0;
  for (const auto& [name, buffer] : buffers_)
    if (!buffer.is_floating_point()) buffer.copy_(next_view(whole_, position, buffer));
}

}  // namespace lockstep::torch
