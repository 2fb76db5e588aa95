#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <utility>

#include "lockstep/device/cuda/stream.h"
#include "lockstep/interop/torch/gradient_device.h"

namespace lockstep::inline v0::torch {
namespace {

/// LibTorch operations on Lockstep's stream, each ordered after the earlier and before the later
/// work on LibTorch's current stream.
template <typename T>
class CudaGradientMath final : public interop::GradientMath<T> {
 public:
  CudaGradientMath(int index, cudaStream_t stream)
      : index_(static_cast<c10::DeviceIndex>(index)),
        stream_(c10::cuda::getStreamFromExternal(stream, index_)) {}

  void assign(std::span<T> to, std::span<const T> from, double factor) override {
    in_order([&] { view(to).copy_(view(from)).mul_(factor); });
  }
  void add(std::span<T> to, std::span<const T> from, double factor) override {
    in_order([&] { view(to).add_(view(from)).mul_(factor); });
  }
  // Also for a factor of 1, so that LibTorch's stream waits for the reductions that this stream has
  // waited for.
  void scale(std::span<T> values, double factor) override {
    in_order([&] {
      if (factor != 1) view(values).mul_(factor);
    });
  }
  void clear(std::span<T> values) override {
    in_order([&] { view(values).zero_(); });
  }
  double squared_norm(std::span<const T> values) override {
    double sum = 0;
    in_order([&] { sum = view(values).to(at::kDouble).square().sum().item().toDouble(); });
    return sum;
  }
  void write(std::span<T> to, std::span<const T> from_host) override {
    in_order([&] { view(to).copy_(host_view(from_host)); });
  }
  void read(std::span<T> to_host, std::span<const T> from) override {
    in_order([&] { host_view(to_host).copy_(view(from)); });
  }

 private:
  static constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;

  static at::Tensor wrap(std::span<const T> values, const at::TensorOptions& options) {
    return at::from_blob(const_cast<T*>(values.data()), {static_cast<std::int64_t>(values.size())},
                         options);
  }
  at::Tensor view(std::span<const T> values) const {
    return wrap(values, at::TensorOptions().dtype(kType).device(at::kCUDA, index_));
  }
  static at::Tensor host_view(std::span<const T> values) { return wrap(values, kType); }

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
  const cudaStream_t native = device::cuda::native(*stream);
  interop::DeviceMath math{
      .float32 = std::make_unique<CudaGradientMath<float>>(device.index, native),
      .float64 = std::make_unique<CudaGradientMath<double>>(device.index, native)};
  return {.stream = std::move(stream), .math = std::move(math)};
}

}  // namespace lockstep::inline v0::torch
