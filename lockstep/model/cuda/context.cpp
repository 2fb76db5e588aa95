#include "lockstep/model/cuda/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/stream.h"
#include "lockstep/device/gpu.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::model::cuda {

namespace {

// The reason of this thread's last failed call, on one line; empty if cuDNN provides none.
std::string cudnn_reason() {
  std::array<char, 1024> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  std::string reason(text.data());
  std::ranges::replace(reason, '\n', ' ');
  return reason.substr(0, reason.find_last_not_of(' ') + 1);
}

}  // namespace

void check(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string reason = cudnn_reason();
  throw Error(ErrorCategory::device, "cudnn", fmt::format("expected {}", what),
              fmt::format("cuDNN {} returned {}{}{}", cudnnGetVersion(),
                          cudnnGetErrorString(status), reason.empty() ? "" : ": ", reason));
}

void check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCategory::device, "cublas", fmt::format("expected {}", what),
              fmt::format("cuBLASLt {} returned {}", cublasLtGetVersion(),
                          cublasLtGetStatusString(status)));
}

Staging::Staging(Context& context, std::size_t bytes)
    : context_(context), device_(context.allocator().allocate(bytes)), values_(bytes) {}

void Staging::update(std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK_OP(bytes.size(), <=, device_.size());
  if (std::memcmp(values_.data(), bytes.data(), bytes.size()) == 0) return;
  std::memcpy(values_.data(), bytes.data(), bytes.size());
  const device::cuda::DeviceScope scope(context_.gpu());
  write_words({reinterpret_cast<const std::uint32_t*>(values_.data()),
               bytes.size() / sizeof(std::uint32_t)},
              reinterpret_cast<std::uint32_t*>(device_.data()), context_.native());
}

namespace {

// Maximum number of layers with keys in a network.
constexpr std::size_t kMaxKeys = 1024;

}  // namespace

PassKeys::PassKeys(Context& context) : staging_(context, kMaxKeys * sizeof(PassKey)) {}

const PassKey* PassKeys::key(const std::string& layer) {
  const std::size_t place = places_.try_emplace(layer, places_.size()).first->second;
  LOCKSTEP_CHECK_OP(place, <, kMaxKeys);
  return reinterpret_cast<const PassKey*>(staging_.data()) + place;
}

void PassKeys::begin(const PassContext& pass) {
  if (places_.empty()) return;
  std::vector<PassKey> keys(places_.size());
  for (const auto& [layer, place] : places_)
    keys[place] = {random_key(pass.seed, layer, static_cast<std::uint64_t>(pass.step)),
                   static_cast<std::uint64_t>(pass.first_sample)};
  staging_.update(std::as_bytes(std::span(keys)));
}

Context::Context(int gpu, const ComputeOptions& options, const ComputeHooks& hooks)
    : gpu_(gpu),
      options_(options),
      hooks_(hooks),
      stream_(device::Device{device::DeviceKind::gpu, gpu}),
      copies_(device::Device{device::DeviceKind::gpu, gpu}),
      native_(device::cuda::native(stream_)),
      allocator_(device::make_gpu_allocator(gpu)),
      algorithms_(AlgorithmCache::default_file()),
      keys_(*this) {
  const device::cuda::DeviceScope scope(gpu);
  cudaDeviceProp properties{};
  device::cuda::check(cudaGetDeviceProperties(&properties, gpu), "the properties of a GPU");
  gpu_name_ = properties.name;
  multiprocessors_ = properties.multiProcessorCount;
  l2_bytes_ = static_cast<std::size_t>(properties.l2CacheSize);
  // Created first, because cuDNN also uses it and may not find it.
  cublasLtHandle_t cublas = nullptr;
  check(cublasLtCreate(&cublas), "cuBLASLt");
  cublas_.reset(cublas);
  cudnnHandle_t cudnn = nullptr;
  check(cudnnCreate(&cudnn), "cuDNN");
  cudnn_.reset(cudnn);
  check(cudnnSetStream(cudnn, native_), "cuDNN on a stream");
}

cudnnDataType_t Context::cudnn_type() const {
  switch (options_.precision) {
    case Precision::float32:
      return CUDNN_DATA_FLOAT;
    case Precision::bfloat16:
      return CUDNN_DATA_BFLOAT16;
    case Precision::float16:
      break;
  }
  return CUDNN_DATA_HALF;
}

cudaDataType_t Context::cuda_type() const {
  switch (options_.precision) {
    case Precision::float32:
      return CUDA_R_32F;
    case Precision::bfloat16:
      return CUDA_R_16BF;
    case Precision::float16:
      break;
  }
  return CUDA_R_16F;
}

}  // namespace lockstep::inline v0::model::cuda
