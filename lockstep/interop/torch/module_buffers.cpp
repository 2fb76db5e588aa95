#include "lockstep/interop/torch/module_buffers.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <span>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::torch {
namespace {

// Alignment of views, sufficient for every type.
constexpr std::size_t kAlignment = 16;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// A view of the next `buffer.numel()` elements of `values` with the shape of `buffer`.
template <typename T>
at::Tensor next_view(std::vector<T>& values, std::size_t& position, const at::Tensor& buffer) {
  at::Tensor view = at::from_blob(values.data() + position, buffer.sizes(),
                                  at::TensorOptions().dtype(c10::CppTypeToScalarType<T>()));
  position += static_cast<std::size_t>(buffer.numel());
  return view;
}

}  // namespace

ModuleBuffers::ModuleBuffers(job::Workers& workers, const NamedTensors& buffers, BufferSync sync)
    : workers_(workers), sync_(sync) {
  std::size_t bytes = 0, values = 0, integers = 0;
  for (const auto& [name, buffer] : buffers.pairs()) {
    buffers_.push_back({name, buffer, buffer.sizes().vec(), buffer.scalar_type()});
    bytes += aligned(buffer.nbytes());
    (buffer.is_floating_point() ? values : integers) += static_cast<std::size_t>(buffer.numel());
  }
  if (sync_ == BufferSync::broadcast) bytes_.resize(bytes);
  if (sync_ != BufferSync::average) return;
  values_.resize(values + 1);
  integers_.resize(integers);
}

void ModuleBuffers::synchronize(double samples) {
  if (buffers_.empty() || sync_ == BufferSync::none || workers_.size() == 1) return;
  check();
  const c10::NoGradGuard no_graph;
  if (sync_ == BufferSync::broadcast) return broadcast(samples);
  average(samples);
  maximize_integers();
}

void ModuleBuffers::check() {
  for (const Entry& entry : buffers_) {
    if (entry.buffer.sizes() == entry.sizes && entry.buffer.scalar_type() == entry.type) continue;
    const Error error(ErrorCategory::input, "distributed_data_parallel",
                      "expected buffers to keep the shape and type with which they were wrapped",
                      fmt::format("{} was resized or converted later", entry.name));
    workers_.group().abort(error.what());
    throw error;
  }
}

void ModuleBuffers::broadcast(double samples) {
  std::int32_t root = samples > 0 ? workers_.rank() : workers_.size();
  workers_.all_reduce(std::span(&root, 1), allreduce::ReduceOp::min);
  if (root == workers_.size()) return;
  const auto view_at = [&](std::size_t position, const Entry& entry) {
    return at::from_blob(bytes_.data() + position, entry.sizes,
                         at::TensorOptions().dtype(entry.type));
  };
  const auto each = [&](const auto& copy) {
    std::size_t position = 0;
    for (const Entry& entry : buffers_) {
      copy(view_at(position, entry), entry.buffer);
      position += aligned(entry.buffer.nbytes());
    }
  };
  const bool is_root = workers_.rank() == root;
  if (is_root) each([](const at::Tensor& view, const at::Tensor& buffer) { view.copy_(buffer); });
  workers_.broadcast(std::span(bytes_), root);
  if (!is_root) each([](const at::Tensor& view, const at::Tensor& buffer) { buffer.copy_(view); });
}

// Values of a rank without samples may be NaN, so they are skipped, not multiplied by zero.
void ModuleBuffers::average(double samples) {
  std::size_t position = 0;
  for (const Entry& entry : buffers_) {
    if (!entry.buffer.is_floating_point()) continue;
    at::Tensor view = next_view(values_, position, entry.buffer);
    if (samples > 0)
      view.copy_(entry.buffer).mul_(samples);
    else
      view.zero_();
  }
  values_.back() = samples;
  workers_.all_reduce(std::span(values_));
  if (values_.back() == 0) return;
  position = 0;
  for (const Entry& entry : buffers_)
    if (entry.buffer.is_floating_point())
      entry.buffer.copy_(next_view(values_, position, entry.buffer).div_(values_.back()));
}

void ModuleBuffers::maximize_integers() {
  if (integers_.empty()) return;
  std::size_t position = 0;
  for (const Entry& entry : buffers_)
    if (!entry.buffer.is_floating_point())
      next_view(integers_, position, entry.buffer).copy_(entry.buffer);
  workers_.all_reduce(std::span(integers_), allreduce::ReduceOp::max);
  position = 0;
  for (const Entry& entry : buffers_)
    if (!entry.buffer.is_floating_point())
      entry.buffer.copy_(next_view(integers_, position, entry.buffer));
}

}  // namespace lockstep::inline v0::torch
