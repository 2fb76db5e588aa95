// State shared by the operations of a GPU replica: stream, library handles, values that the host
// sets for each pass, and the layout of scratch memory.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/device/buffer.h"
#include "lockstep/device/cuda/cuda.h"
#include "lockstep/device/stream.h"
#include "lockstep/model/cuda/algorithm_cache.h"
#include "lockstep/model/cuda/elementwise.h"
#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::model::cuda {

/// Lays out parts of scratch memory; each starts at a multiple of 256 bytes, as libraries require
/// of a workspace.
class ScratchPlan {
 public:
  static constexpr std::size_t kAlignment = 256;

  /// Adds a part of `bytes` bytes; returns its offset.
  std::size_t add(std::size_t bytes) {
    const std::size_t begin = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
  /// Bytes to request from the plan, whose memory has a smaller alignment.
  std::size_t bytes() const { return bytes_ == 0 ? 0 : bytes_ + kAlignment; }

 private:
  std::size_t bytes_ = 0;
};

/// The part of `scratch` at `offset` of its ScratchPlan.
inline std::byte* part_of(std::span<std::byte> scratch, std::size_t offset) {
  const auto address = reinterpret_cast<std::size_t>(scratch.data());
  const std::size_t aligned =
      (address + ScratchPlan::kAlignment - 1) / ScratchPlan::kAlignment * ScratchPlan::kAlignment;
  return scratch.data() + (aligned - address) + offset;
}

/// Throw Error (device) unless `status` is success. `what` names the attempted operation, such as
/// "a convolution".
void check(cudnnStatus_t status, std::string_view what);
void check(cublasStatus_t status, std::string_view what);

template <typename Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, device::cuda::Destroy<destroy>>;

using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
using CublasLtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;

class Context;

/// GPU memory that the host updates repeatedly. New values are the arguments of a kernel on the
/// context's stream: work enqueued earlier reads the old values, work enqueued later the new ones,
/// and the host waits for neither.
class Staging {
 public:
  Staging(Context& context, std::size_t bytes);

  std::byte* data() const { return static_cast<std::byte*>(device_.data()); }  ///< on the GPU

  /// Replaces the first bytes, a multiple of 4; nothing is enqueued if they are unchanged.
  void update(std::span<const std::byte> bytes);

 private:
  Context& context_;
  device::Buffer device_;
  std::vector<std::byte> values_;  // contents of device_ after the enqueued work
};

/// One value of a trivial type in GPU memory, set by the host.
template <typename T>
class StagedValue {
 public:
  explicit StagedValue(Context& context) : staging_(context, sizeof(T)) {}
  const T* data() const { return reinterpret_cast<const T*>(staging_.data()); }
  void set(const T& value) { staging_.update(std::as_bytes(std::span(&value, 1))); }

 private:
  Staging staging_;
};

/// The random keys of layers in the current pass, in GPU memory.
class PassKeys {
 public:
  explicit PassKeys(Context& context);

  /// The key of `layer`. Its address stays valid; begin() sets its value.
  const PassKey* key(const std::string& layer);
  /// Computes the keys of `pass`.
  void begin(const PassContext& pass);

 private:
  Staging staging_;
  std::map<std::string, std::size_t> places_;
};

/// The stream, library handles and precision options of a GPU replica. Used by one thread, with the
/// stream's GPU as its current device.
class Context {
 public:
  /// Throws Error (device) if the GPU is not available.
  Context(int gpu, const ComputeOptions& options, const ComputeHooks& hooks = {});

  int gpu() const { return gpu_; }
  /// The GPU's product name, as list_gpus() reports it.
  const std::string& gpu_name() const { return gpu_name_; }
  int multiprocessors() const { return multiprocessors_; }
  std::size_t l2_bytes() const { return l2_bytes_; }  ///< size of the second-level cache
  /// Reports progress; called during long operations that do not enqueue work for the pass.
  void made_progress() const {
    if (hooks_.progress) hooks_.progress();
  }
  const ComputeOptions& options() const { return options_; }
  /// The group that synchronizes batch normalization; null: none.
  StatisticsExchange* statistics() const { return hooks_.statistics; }
  /// Time spent measuring algorithms so far.
  double tuning_seconds() const { return choosing_seconds_; }
  /// Measures algorithms: runs `choose`, and adds its duration to tuning_seconds().
  template <typename Choose>
  auto measured(Choose choose) {
    const auto start = std::chrono::steady_clock::now();
    auto chosen = choose();
    choosing_seconds_ += seconds_since(start);
    return chosen;
  }
  device::Stream& stream() { return stream_; }
  /// The stream for copies from the host, overlapped with computation.
  device::Stream& copies() { return copies_; }
  cudaStream_t native() const { return native_; }
  cudnnHandle_t cudnn() const { return cudnn_.get(); }
  cublasLtHandle_t cublas() const { return cublas_.get(); }
  cudnnDataType_t cudnn_type() const;
  cudaDataType_t cuda_type() const;
  device::Allocator& allocator() { return *allocator_; }
  AlgorithmCache& algorithms() { return algorithms_; }
  /// An object that operations share, such as a cuDNN plan, by name; null until one sets it.
  std::shared_ptr<const void>& shared(const std::string& name) { return shared_[name]; }
  /// Adds a sentence about how layers are computed, unless it is already present.
  void note(const std::string& choice) { choices_.insert(choice); }
  const std::set<std::string>& choices() const { return choices_; }
  PassKeys& keys() { return keys_; }

 private:
  int gpu_;
  std::string gpu_name_;
  int multiprocessors_ = 0;
  std::size_t l2_bytes_ = 0;
  ComputeOptions options_;
  ComputeHooks hooks_;
  double choosing_seconds_ = 0;
  device::Stream stream_;
  device::Stream copies_;
  cudaStream_t native_;
  std::unique_ptr<device::Allocator> allocator_;
  CudnnHandle cudnn_;
  CublasLtHandle cublas_;
  AlgorithmCache algorithms_;
  std::map<std::string, std::shared_ptr<const void>> shared_;
  std::set<std::string> choices_;
  PassKeys keys_;
};

}  // namespace lockstep::inline v0::model::cuda
