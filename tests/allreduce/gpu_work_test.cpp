// GPU operations of reductions; skipped without a GPU.
#include "lockstep/allreduce/cuda/gpu_work.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr device::Device kGpu = {device::DeviceKind::gpu, 0};

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::minstd_rand dice(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(dice() >> 8);
  return bytes;
}

// Numbers of moderate size, whose sums depend on the order. No NaN: its bits depend on the GPU.
std::vector<std::byte> values_of(ElementType type, std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes = random_bytes(count * bytes_per_element(type), seed);
  const auto clear_top = [&](std::size_t width, std::byte kept) {
    for (std::size_t i = width - 1; i < bytes.size(); i += width) bytes[i] &= kept;
  };
  // Clears the top exponent bit, so that the exponent is never all ones.
  if (type == ElementType::float32) clear_top(4, std::byte{0xbf});
  if (type == ElementType::float64) clear_top(8, std::byte{0xbf});
  if (type == ElementType::float16) clear_top(2, std::byte{0xbf});
  if (type == ElementType::bfloat16) clear_top(2, std::byte{0xbf});
  return bytes;
}

class GpuWork : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }
};

struct Sizes {
  std::size_t members;
  std::size_t offset;  // first element; some offsets prevent 16-byte loads
  Slice slice;
};

void expect_same_reduction_as_cpu(ElementType type, ReduceOp op, const Sizes& sizes) {
  constexpr std::size_t kCount = 100'003;
  const std::size_t width = bytes_per_element(type);
  device::Stream stream(kGpu);
  const auto allocator = device::make_gpu_allocator(kGpu.index);
  std::vector<std::vector<std::byte>> on_host;
  std::vector<device::Buffer> on_gpu;
  std::vector<const std::byte*> host_members;
  std::vector<std::byte*> host_results;
  std::vector<const std::byte*> members;
  std::vector<std::byte*> results;
  for (std::size_t member = 0; member < sizes.members; ++member)
    on_host.push_back(values_of(type, kCount + sizes.offset, static_cast<unsigned>(member + 1)));
  for (std::vector<std::byte>& values : on_host) {
    on_gpu.push_back(allocator->allocate(values.size()));
    gpu::copy(values.data(), on_gpu.back().data(), values.size(), stream);
    results.push_back(static_cast<std::byte*>(on_gpu.back().data()) + sizes.offset * width);
    members.push_back(results.back());
    host_results.push_back(values.data() + sizes.offset * width);
    host_members.push_back(host_results.back());
  }

  gpu::reduce_slice(members, results, sizes.slice, type, op, stream);
  std::vector<std::byte> copied(on_host.front().size());
  reduce_slice(host_members, host_results, sizes.slice, type, op);

  for (std::size_t member = 0; member < sizes.members; ++member) {
    gpu::copy(on_gpu[member].data(), copied.data(), copied.size(), stream);
    stream.synchronize();
    ASSERT_EQ(std::memcmp(copied.data(), on_host[member].data(), copied.size()), 0)
        << name_of(type) << ' ' << name_of(op) << ", member " << member << " of " << sizes.members
        << ", offset " << sizes.offset;
  }
}

TEST_F(GpuWork, ReductionMatchesTheCpuBitwise) {
  for (const ElementType type : {ElementType::float32, ElementType::float64, ElementType::float16,
                                 ElementType::bfloat16, ElementType::int32, ElementType::int64})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product})
      for (const Sizes& sizes : {Sizes{2, 0, {0, 100'003}},
                                 {3, 0, {64, 50'001}},
                                 {5, 1, {0, 1}},
                                 {2, 3, {7, 9999}},
                                 {32, 0, {0, 100'003}},
                                 {2, 0, {5, 5}}})
        expect_same_reduction_as_cpu(type, op, sizes);
}

template <typename Half>
void expect_same_conversion_as_cpu(ElementType type, std::size_t offset) {
  constexpr std::size_t kCount = 10'003;
  device::Stream stream(kGpu);
  const auto allocator = device::make_gpu_allocator(kGpu.index);
  const std::vector<std::byte> bytes = values_of(ElementType::float32, kCount, 1);
  std::vector<float> wide(kCount);
  std::memcpy(wide.data(), bytes.data(), bytes.size());
  std::vector<Half> halves(kCount);
  narrow(std::span<const float>(wide), std::span<Half>(halves));
  std::vector<float> widened(kCount);
  widen(std::span<const Half>(halves), std::span<float>(widened));

  const device::Buffer wide_buffer = allocator->allocate((kCount + offset) * sizeof(float));
  const device::Buffer half_buffer = allocator->allocate((kCount + offset) * sizeof(Half));
  const std::span<float> wide_on_gpu = wide_buffer.as<float>().subspan(offset);
  const std::span<Half> halves_on_gpu = half_buffer.as<Half>().subspan(offset);
  gpu::copy(wide.data(), wide_on_gpu.data(), wide_on_gpu.size_bytes(), stream);
  gpu::narrow(wide_on_gpu, halves_on_gpu.data(), type, {}, stream);
  gpu::widen(halves_on_gpu.data(), wide_on_gpu, type, {}, stream);
  std::vector<Half> narrowed(kCount);
  gpu::copy(halves_on_gpu.data(), narrowed.data(), halves_on_gpu.size_bytes(), stream);
  gpu::copy(wide_on_gpu.data(), wide.data(), wide_on_gpu.size_bytes(), stream);
  stream.synchronize();
  EXPECT_EQ(std::memcmp(narrowed.data(), halves.data(), halves_on_gpu.size_bytes()), 0) << offset;
  EXPECT_EQ(wide, widened) << offset;
}

TEST_F(GpuWork, ConversionMatchesTheCpuBitwise) {
  for (const std::size_t offset : {0, 1, 4, 8}) {
    expect_same_conversion_as_cpu<Float16>(ElementType::float16, offset);
    expect_same_conversion_as_cpu<BFloat16>(ElementType::bfloat16, offset);
  }
}

TEST_F(GpuWork, DistinguishesGpuAndHostMemory) {
  std::vector<float> on_host(10);
  EXPECT_FALSE(gpu::holds(on_host.data()));
  EXPECT_FALSE(gpu::holds(device::make_pinned_allocator()->allocate(10).data()));
  EXPECT_TRUE(gpu::holds(device::make_gpu_allocator(kGpu.index)->allocate(10).data()));
}

TEST_F(GpuWork, FillsWithZeros) {
  device::Stream stream(kGpu);
  const device::Buffer buffer = device::make_gpu_allocator(kGpu.index)->allocate(1000);
  std::vector<std::byte> bytes = random_bytes(1000, 1);
  gpu::copy(bytes.data(), buffer.data(), 1000, stream);
  gpu::fill_with_zeros(buffer.data(), 999, stream);
  const std::byte last = bytes.back();
  gpu::copy(buffer.data(), bytes.data(), 1000, stream);
  stream.synchronize();
  for (std::size_t i = 0; i < 999; ++i) ASSERT_EQ(bytes[i], std::byte{0}) << i;
  EXPECT_EQ(bytes.back(), last);
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
