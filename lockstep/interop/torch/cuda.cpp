#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <utility>

#include "lockstep/device/cuda/stream.h"
#include "lockstep/interop/torch/gradient_device.h"

namespace lockstep::torch {
namespace {

/// LibTorch operations on Lockstep's stream, each ordered after the earlier and before the later
/// work on LibTorch's current stream.
class CudaGradientMath final : public interop::GradientMath {
 public:
  CudaGradientMath(int index, cudaStream_t stream)
      : index_(static_cast<c10::DeviceIndex>(index)),
        stream_(c10::cuda::getStreamFromExternal(stream, index_)) {}

  void assign(std::span<float> to, std::span<const float> from, float factor) override {
    in_order([&] { view(to).copy_(view(from)).mul_(factor); });
  }
  void add(std::span<float> to, std::span<const float> from, float factor) override {
    in_order([&] { view(to).add_(view(from)).mul_(factor); });
  }
  // Also for a factor of 1, so that LibTorch's stream waits for the reductions that this stream has
  // waited for.
  void scale(std::span<float> values, float factor) override {
    in_order([&] {
      if (factor != 1) view(values).mul_(factor);
    });
  }
  void clear(std::span<float> values) override {
    in_order([&] { view(values).zero_(); });
  }
  double squared_norm(std::span<const float> values) override {
    double sum = 0;
    in_order([&] { sum = view(values).to(at::kDouble).square().sum().item<double>(); });
    return sum;
  }
  void write(std::span<float> to, std::span<const float> from_host) override {
    in_order([&] { view(to).copy_(host_view(from_host)); });
  }
  void read(std::span<float> to_host, std::span<const float> from) override {
    in_order([&] { host_view(to_host).copy_(view(from)); });
  }

 private:
  static at::Tensor wrap(std::span<const float> values, const at::TensorOptions& options) {
    return at::from_blob(const_cast<float*>(values.data()),
                         {static_cast<std::int64_t>(values.size())}, options);
  }
  at::Tensor view(std::span<const float> values) const {
    return wrap(values, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, index_));
  }
  static at::Tensor host_view(std::span<const float> values) { return wrap(values, at::kFloat); }

  template <typename Work>
  void in_order(const Work& work) {
    const c10::NoGradGuard no_graph;
    const c10::cuda::CUDAStream theirs = c10::cuda::getCurrentCUDAStream(index_);
    at::cuda::CUDAEvent before, after;
    before.record(theirs);
    before.block(stream_);
    {
      const c10::cuda::CUDAStreamGuard guard(stream_);
      work();
    }
    after.record(stream_);
    after.block(theirs);
  }

  c10::DeviceIndex index_;
  c10::cuda::CUDAStream stream_;
};

}  // namespace

GradientDevice make_gradient_device(device::Device device) {
  if (device.kind == device::DeviceKind::cpu) return {};
  auto stream = std::make_unique<device::Stream>(device);
  auto math = std::make_unique<CudaGradientMath>(device.index, device::cuda::native(*stream));
  return {.stream = std::move(stream), .math = std::move(math)};
}

}  // namespace lockstep::torch
