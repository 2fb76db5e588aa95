// Memory of the pretended GPUs, and page-locked memory: registered host memory. Pieces are
// surrounded by guard patterns, which detect writes out of bounds.
#include "tests/support/pretend_cuda/memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/streams.h"

namespace lockstep::inline v0::pretend {
namespace {

constexpr std::size_t kAlignment = 256;  // alignment of cudaMalloc, and size of the guards
constexpr int kFresh = 0xff;             // a NaN in every type of float
constexpr int kGuard = 0xa5;
constexpr int kFreed = 0x7f;
constexpr std::size_t kMaxFreedBytes = std::size_t{32} << 20;

struct Piece {
  std::size_t bytes = 0;   // requested size
  std::size_t padded = 0;  // padded to the alignment
  cudaMemoryType type = cudaMemoryTypeDevice;
  int device = 0;
};

bool holds_only(const std::byte* data, std::size_t bytes, int pattern) {
  return std::all_of(data, data + bytes,
                     [&](std::byte each) { return each == static_cast<std::byte>(pattern); });
}

class Memory {
 public:
  std::byte* allocate(std::size_t bytes, cudaMemoryType type) {
    const std::lock_guard lock(mutex_);
    const Piece piece = {
        .bytes = bytes, .padded = pad(bytes), .type = type, .device = current_gpu()};
    if (type == cudaMemoryTypeDevice) {
      if (piece.padded > std::min(free_of(piece.device), machine().largest_piece)) return nullptr;
      used_[piece.device] += piece.padded;
    }
    auto* begin =
        static_cast<std::byte*>(std::aligned_alloc(kAlignment, piece.padded + 2 * kAlignment));
    if (begin == nullptr)
      usage_error(fmt::format("the host has no {} bytes for a pretended GPU", bytes));
    std::byte* data = begin + kAlignment;
    std::memset(begin, kGuard, kAlignment);
    std::memset(data, kFresh, bytes);
    std::memset(data + bytes, kGuard, piece.padded - bytes + kAlignment);
    pieces_[data] = piece;
    return data;
  }

  void free(void* pointer, cudaMemoryType type) {
    const std::lock_guard lock(mutex_);
    auto* data = static_cast<std::byte*>(pointer);
    const auto found = pieces_.find(data);
    if (found == pieces_.end() || found->second.type != type) {
      const bool was_freed =
          std::ranges::any_of(freed_, [&](const auto& each) { return each.first == data; });
      usage_error(fmt::format("{} was freed {}", pointer,
                              was_freed ? "twice" : "that nobody had allocated this way"));
    }
    const Piece piece = found->second;
    pieces_.erase(found);
    if (type == cudaMemoryTypeDevice) used_[piece.device] -= piece.padded;
    check_guards(data, piece);
    if (piece.padded > kMaxFreedBytes) return std::free(data - kAlignment);
    std::memset(data, kFreed, piece.bytes);
    freed_.emplace_back(data, piece);
    freed_bytes_ += piece.padded;
    while (freed_bytes_ > kMaxFreedBytes) give_back_oldest();
  }

  /// The piece that contains [pointer, pointer + bytes).
  std::optional<Piece> find(const void* pointer, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* data = static_cast<const std::byte*>(pointer);
    auto next = pieces_.upper_bound(data);
    if (next != pieces_.begin()) {
      const auto& [begin, piece] = *--next;
      if (data < begin + piece.bytes) {
        if (data + bytes > begin + piece.bytes)
          usage_error(fmt::format("{} bytes at {} end behind their allocation", bytes, pointer));
        return piece;
      }
    }
    for (const auto& [begin, piece] : freed_)
      if (data >= begin && data < begin + piece.bytes)
        usage_error(fmt::format("{} was freed before its use", pointer));
    if (all_is_gpus == 0) return std::nullopt;
    return Piece{
        .bytes = bytes, .padded = bytes, .type = cudaMemoryTypeDevice, .device = current_gpu()};
  }

  std::size_t free_now(int device) {
    const std::lock_guard lock(mutex_);
    return free_of(device);
  }

  std::atomic<int> all_is_gpus{0};

 private:
  static std::size_t pad(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  std::size_t free_of(int device) {
    const std::size_t all = machine().bytes_per_gpu;
    return all - std::min(all, used_[device]);
  }

  static void check_guards(const std::byte* data, const Piece& piece) {
    if (!holds_only(data - kAlignment, kAlignment, kGuard))
      usage_error(fmt::format("something was written before the {} bytes at {}", piece.bytes,
                              fmt::ptr(data)));
    if (!holds_only(data + piece.bytes, piece.padded - piece.bytes + kAlignment, kGuard))
      usage_error(fmt::format("something was written behind the {} bytes at {}", piece.bytes,
                              fmt::ptr(data)));
  }

  void give_back_oldest() {
    const auto [data, piece] = freed_.front();
    freed_.pop_front();
    freed_bytes_ -= piece.padded;
    if (!holds_only(data, piece.bytes, kFreed))
      usage_error(fmt::format("something was written into the {} bytes at {} after they were freed",
                              piece.bytes, fmt::ptr(data)));
    std::free(data - kAlignment);
  }

  std::mutex mutex_;
  std::map<const std::byte*, Piece> pieces_;
  std::deque<std::pair<std::byte*, Piece>>
      freed_;  // not reused for a while, to detect use after free
  std::size_t freed_bytes_ = 0;
  std::map<int, std::size_t> used_;
};

// It is never destroyed, because static objects may free memory in their destructors.
Memory& memory() {
  static auto* memory = new Memory;
  return *memory;
}

cudaMemoryType type_at(const void* pointer, std::size_t bytes) {
  const auto piece = memory().find(pointer, bytes);
  return piece ? piece->type : cudaMemoryTypeUnregistered;
}

bool is_on(cudaMemoryType type, bool is_device) {
  return (type == cudaMemoryTypeDevice) == is_device;
}

bool fits(cudaMemcpyKind kind, cudaMemoryType to, cudaMemoryType from) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return is_on(to, false) && is_on(from, false);
    case cudaMemcpyHostToDevice:
      return is_on(to, true) && is_on(from, false);
    case cudaMemcpyDeviceToHost:
      return is_on(to, false) && is_on(from, true);
    case cudaMemcpyDeviceToDevice:
      return is_on(to, true) && is_on(from, true);
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// As in CUDA, pageable memory is read and written before the call returns.
std::atomic<std::uint64_t> copies_in_device_memory{0};

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const cudaMemoryType to_type = type_at(to, bytes);
  const cudaMemoryType from_type = type_at(from, bytes);
  if (!fits(kind, to_type, from_type) && memory().all_is_gpus == 0) return cudaErrorInvalidValue;
  if (to_type == cudaMemoryTypeDevice && from_type == cudaMemoryTypeDevice)
    ++copies_in_device_memory;
  const auto work = [=] { std::memmove(to, from, bytes); };
  if (to_type == cudaMemoryTypeUnregistered) return perform(stream, work);
  if (from_type != cudaMemoryTypeUnregistered || is_captured(stream)) return enqueue(stream, work);
  const auto* begin = static_cast<const std::byte*>(from);
  return enqueue(stream, [to, staged = std::vector<std::byte>(begin, begin + bytes)] {
    std::memcpy(to, staged.data(), staged.size());
  });
}

cudaError_t fill(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (type_at(data, bytes) == cudaMemoryTypeUnregistered) return cudaErrorInvalidValue;
  return enqueue(stream, [=] { std::memset(data, value, bytes); });
}

// For calls that may wait for a GPU or order its work.
cudaError_t readiness_outside_of_captures() {
  const cudaError_t status = readiness();
  return status == cudaSuccess ? check_no_capture() : status;
}

cudaError_t allocate(void** data, std::size_t bytes, cudaMemoryType type) {
  *data = nullptr;
  if (const cudaError_t status = readiness_outside_of_captures(); status != cudaSuccess)
    return status;
  if (bytes == 0) return cudaSuccess;
  if (machine().waits_for_all) wait_for_all_streams();
  *data = memory().allocate(bytes, type);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

// CUDA may wait for the GPU first; code should not rely on that, so this one does not wait.
cudaError_t free(void* data, cudaMemoryType type) {
  if (const cudaError_t status = readiness_outside_of_captures(); status != cudaSuccess)
    return status;
  if (data != nullptr) memory().free(data, type);
  return cudaSuccess;
}

}  // namespace

void count_all_memory_as_gpus(int count) { memory().all_is_gpus += count; }
std::uint64_t device_copies() { return copies_in_device_memory; }
std::size_t free_bytes(int device) { return memory().free_now(device); }
bool is_on_gpu(const void* data, std::size_t bytes) {
  return type_at(data, bytes) == cudaMemoryTypeDevice;
}

}  // namespace lockstep::inline v0::pretend

namespace pretend = lockstep::pretend;

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return pretend::answer(pretend::allocate(data, bytes, cudaMemoryTypeDevice));
}

cudaError_t cudaFree(void* data) {
  return pretend::answer(pretend::free(data, cudaMemoryTypeDevice));
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned /*flags*/) {
  return pretend::answer(pretend::allocate(data, bytes, cudaMemoryTypeHost));
}

cudaError_t cudaFreeHost(void* data) {
  return pretend::answer(pretend::free(data, cudaMemoryTypeHost));
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t status = pretend::readiness(); status != cudaSuccess)
    return pretend::answer(status);
  const std::size_t bytes = pretend::machine().bytes_per_gpu;
  *free = pretend::free_bytes(pretend::current_gpu());
  *total = bytes + bytes / 16 + 1;  // the driver uses some
  return cudaSuccess;
}

// CUDA does not specify whether this is allowed during a capture; code should not rely on it.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (const cudaError_t status = pretend::readiness_outside_of_captures(); status != cudaSuccess)
    return pretend::answer(status);
  const auto piece = pretend::memory().find(pointer, 1);
  *attributes = {};
  attributes->type = piece ? piece->type : cudaMemoryTypeUnregistered;
  attributes->device = piece ? piece->device : cudaInvalidDeviceId;
  attributes->hostPointer =
      !piece || piece->type == cudaMemoryTypeHost ? const_cast<void*>(pointer) : nullptr;
  attributes->devicePointer = piece ? const_cast<void*>(pointer) : nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t status = pretend::readiness(); status != cudaSuccess)
    return pretend::answer(status);
  return pretend::answer(pretend::copy(to, from, bytes, kind, stream));
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t status = pretend::readiness(); status != cudaSuccess)
    return pretend::answer(status);
  return pretend::answer(pretend::fill(data, value, bytes, stream));
}

// Returns before the memory is written, as CUDA may.
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  if (const cudaError_t status = pretend::readiness_outside_of_captures(); status != cudaSuccess)
    return pretend::answer(status);
  return pretend::answer(pretend::fill(data, value, bytes, cudaStreamLegacy));
}

}  // extern "C"
