#include "tests/support/pretend_gpu.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "allreduce/communication_thread.h"
#include "allreduce/cuda/gpu_work.h"
#include "allreduce/element.h"
#include "device/error.h"
#include "device/gpu.h"
#include "device/stream_impl.h"

namespace lockstep {
namespace pretend {
namespace {

// Where memory of GPUs is.
class Memory {
 public:
  static Memory& of_this_process() {
    static Memory memory;
    return memory;
  }

  void* allocate(std::size_t bytes) {
    const std::size_t size = (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64;
    void* data = std::aligned_alloc(64, size);
    std::memset(data, 0x5a, size);
    const std::lock_guard lock(mutex_);
    bytes_[static_cast<const std::byte*>(data)] = size;
    return data;
  }

  void free(void* data) {
    {
      const std::lock_guard lock(mutex_);
      LOCKSTEP_CHECK_OP(bytes_.erase(static_cast<const std::byte*>(data)), ==, 1U);
    }
    std::free(data);
  }

  bool holds(const void* data) {
    if (holds_all > 0) return true;
    const std::lock_guard lock(mutex_);
    auto next = bytes_.upper_bound(static_cast<const std::byte*>(data));
    if (next == bytes_.begin()) return false;
    const auto& [begin, size] = *--next;
    return static_cast<const std::byte*>(data) < begin + size;
  }

  std::atomic<int> holds_all{0};

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> bytes_;
};

class Moment {
 public:
  void come() {
    const std::lock_guard lock(mutex_);
    has_come_ = true;
    came_.notify_all();
  }
  bool has_come() const {
    const std::lock_guard lock(mutex_);
    return has_come_;
  }
  void wait() const {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [this] { return has_come_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
  bool has_come_ = false;
};

class PretendEvent final : public device::Event::Impl {
 public:
  explicit PretendEvent(std::shared_ptr<Moment> moment) : moment_(std::move(moment)) {}
  bool is_complete() const override { return moment_->has_come(); }
  void synchronize() const override { moment_->wait(); }
  const std::shared_ptr<Moment>& moment() const { return moment_; }

 private:
  std::shared_ptr<Moment> moment_;
};

class PretendStream final : public device::Stream::Impl {
 public:
  explicit PretendStream(int index) : index_(index) {}

  device::Device device() const override { return {device::DeviceKind::gpu, index_}; }

  std::unique_ptr<device::Event::Impl> record() override {
    auto moment = std::make_shared<Moment>();
    thread_.give([moment] { moment->come(); });
    return std::make_unique<PretendEvent>(std::move(moment));
  }

  void wait(const device::Event::Impl& event) override {
    if (const auto* other = dynamic_cast<const PretendEvent*>(&event))
      thread_.give([moment = other->moment()] { moment->wait(); });
    else
      event.synchronize();
  }

  void synchronize() override { thread_.wait(); }

  void copy(void* to, const void* from, std::size_t bytes) override {
    enqueue([=] { std::memcpy(to, from, bytes); });
  }

  void enqueue(std::function<void()> work) {
    thread_.give([work = std::move(work), dawdles = dice_() % 8 == 0] {
      if (dawdles) std::this_thread::sleep_for(std::chrono::microseconds(50));
      work();
    });
  }

 private:
  int index_;
  std::minstd_rand dice_;
  allreduce::CommunicationThread thread_;
};

class PretendAllocator final : public device::Allocator {
 public:
  explicit PretendAllocator(device::Device device) : device_(device) {}

  device::Buffer allocate(std::size_t bytes) override {
    void* data = allocate_on_gpu(bytes);
    std::memset(data, 0, std::max<std::size_t>(bytes, 1));
    return {data, bytes, device_, free_on_gpu};
  }

 private:
  device::Device device_;
};

void check_index(int index) {
  if (index < 0 || index >= kGpus)
    throw Error(ErrorCategory::device, "gpu", fmt::format("needed gpu:{}", index),
                fmt::format("this process sees {} GPUs", kGpus));
}

}  // namespace

std::vector<device::Device> gpus(int count, int first) {
  std::vector<device::Device> list;
  for (int i = 0; i < count; ++i) list.push_back({device::DeviceKind::gpu, first + i});
  return list;
}

void enqueue(device::Stream& stream, std::function<void()> work) {
  auto* pretended = dynamic_cast<PretendStream*>(&stream.impl());
  LOCKSTEP_CHECK(pretended != nullptr);
  pretended->enqueue(std::move(work));
}

AllMemoryIsOnGpus::AllMemoryIsOnGpus() { ++Memory::of_this_process().holds_all; }
AllMemoryIsOnGpus::~AllMemoryIsOnGpus() { --Memory::of_this_process().holds_all; }

void* allocate_on_gpu(std::size_t bytes) { return Memory::of_this_process().allocate(bytes); }
void free_on_gpu(void* memory) { Memory::of_this_process().free(memory); }

}  // namespace pretend

namespace device {

bool gpu_is_available() noexcept { return true; }
std::string gpu_unavailable_reason() { return ""; }

std::vector<GpuInfo> list_gpus() {
  std::vector<GpuInfo> list;
  for (int index = 0; index < pretend::kGpus; ++index)
    list.push_back({.index = index,
                    .name = "pretended",
                    .uuid = fmt::format("GPU-{:08}-0000-0000-0000-000000000000", index),
                    .total_bytes = std::size_t{1} << 30,
                    .compute_major = 9,
                    .compute_minor = 0});
  return list;
}

std::size_t gpu_free_bytes(int /*index*/) { return std::size_t{1} << 30; }
std::string cuda_built_version() { return "absent"; }
std::string cuda_loaded_version() { return "absent"; }

std::unique_ptr<Allocator> make_gpu_allocator(int index) {
  pretend::check_index(index);
  return std::make_unique<pretend::PretendAllocator>(Device{DeviceKind::gpu, index});
}

std::unique_ptr<Allocator> make_pinned_allocator() { return std::make_unique<HostAllocator>(); }

std::unique_ptr<Stream::Impl> make_gpu_stream(int index) {
  pretend::check_index(index);
  return std::make_unique<pretend::PretendStream>(index);
}

}  // namespace device

namespace allreduce::gpu {
namespace {

// What the kernel does, by the same arithmetic.
template <typename Op, typename T>
void reduce_elements(const std::vector<const std::byte*>& members, const std::vector<std::byte*>& results,
                     Slice slice) {
  for (std::size_t i = slice.begin; i < slice.end; ++i) {
    const T reduced = reduce_element<Op, T>(static_cast<int>(members.size()), [&](int member) {
      return reinterpret_cast<const T*>(members[static_cast<std::size_t>(member)])[i];
    });
    for (std::byte* result : results) reinterpret_cast<T*>(result)[i] = reduced;
  }
}

using Reduction = void (*)(const std::vector<const std::byte*>&, const std::vector<std::byte*>&, Slice);

template <typename T>
Reduction reduction_of(ReduceOp op) {
  if (op == ReduceOp::sum) return reduce_elements<Sum, T>;
  return op == ReduceOp::max ? reduce_elements<Max, T> : reduce_elements<Min, T>;
}

Reduction reduction_of(ElementType type, ReduceOp op) {
  switch (type) {
    case ElementType::float32:
      return reduction_of<float>(op);
    case ElementType::float64:
      return reduction_of<double>(op);
    case ElementType::float16:
      return reduction_of<device::Float16>(op);
    case ElementType::bfloat16:
      return reduction_of<device::BFloat16>(op);
    case ElementType::int32:
      return reduction_of<std::int32_t>(op);
    case ElementType::int64:
      return reduction_of<std::int64_t>(op);
  }
  return nullptr;
}

}  // namespace

bool holds(const void* memory) { return pretend::Memory::of_this_process().holds(memory); }

void copy(const void* from, void* to, std::size_t bytes, device::Stream& stream) {
  pretend::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}

void fill_with_zeros(void* memory, std::size_t bytes, device::Stream& stream) {
  pretend::enqueue(stream, [=] { std::memset(memory, 0, bytes); });
}

void reduce_slice(std::span<const std::byte* const> members, std::span<std::byte* const> results, Slice slice,
                  ElementType type, ReduceOp op, device::Stream& stream) {
  LOCKSTEP_CHECK_OP(members.size(), <=, kMostMembers);
  if (members.size() < 2 || slice.begin == slice.end) return;
  pretend::enqueue(stream, [reduce = reduction_of(type, op), slice,
                            from = std::vector<const std::byte*>(members.begin(), members.end()),
                            to = std::vector<std::byte*>(results.begin(), results.end())] { reduce(from, to, slice); });
}

}  // namespace allreduce::gpu
}  // namespace lockstep
