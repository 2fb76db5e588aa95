// Memory, streams and recordings on a real GPU; skipped if there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/device/recording.h"
#include "lockstep/device/stream.h"

namespace lockstep::inline v0::device {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Device kGpu{DeviceKind::gpu, 0};
constexpr std::size_t kCount = std::size_t{1} << 20;
constexpr std::size_t kBytes = kCount * sizeof(float);

class OnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!gpu_is_available()) GTEST_SKIP() << gpu_unavailable_reason();
  }

  static Buffer pinned(float value) {
    Buffer buffer = make_pinned_allocator()->allocate(kBytes);
    std::ranges::fill(buffer.as<float>(), value);
    return buffer;
  }
  static Buffer on_gpu() { return make_gpu_allocator(kGpu.index)->allocate(kBytes); }
};

TEST_F(OnAGpu, EachGpuIsDescribed) {
  int index = 0;
  for (const GpuInfo& gpu : list_gpus()) {
    EXPECT_EQ(gpu.index, index++);
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_THAT(gpu.uuid, StartsWith("GPU-"));
    EXPECT_EQ(gpu.uuid.size(), 40U);
    EXPECT_GT(gpu.compute_major, 0);
    EXPECT_GT(gpu.total_bytes, gpu_free_bytes(gpu.index));
  }
}

TEST_F(OnAGpu, MemoryIsZeroed) {
  const Buffer buffer = on_gpu();
  EXPECT_EQ(buffer.size(), kBytes);
  EXPECT_EQ(buffer.device(), kGpu);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
  Stream stream(kGpu);
  HostView view(buffer.as<float>(), stream);
  EXPECT_THAT(view.values(), Each(0.0F));
}

TEST_F(OnAGpu, RejectsAllocationsBeyondTheMemory) {
  try {
    make_gpu_allocator(0)->allocate(std::size_t{1} << 60);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::device);
    EXPECT_THAT(error.what(), HasSubstr("[memory] expected 1152921504606846976 bytes on gpu:0; "));
  }
  EXPECT_EQ(on_gpu().size(), kBytes) << "the failure is cleared";
}

TEST_F(OnAGpu, PageLockedMemoryIsZeroedHostMemory) {
  const Buffer buffer = make_pinned_allocator()->allocate(1000);
  EXPECT_EQ(buffer.device(), Device{});
  EXPECT_THAT(buffer.as<std::uint8_t>(), Each(0));
}

TEST_F(OnAGpu, EventsMeasureTheTimeBetweenThem) {
  const Buffer from = on_gpu();
  const Buffer to = on_gpu();
  Stream stream(kGpu);
  const Event begin = stream.record_timed();
  copy(to.data(), from.data(), kBytes, stream);
  const Event end = stream.record_timed();
  const Event untimed = stream.record();
  untimed.synchronize();
  EXPECT_GT(end.seconds_since(begin), 0);
  EXPECT_THROW(static_cast<void>(untimed.seconds_since(begin)), Error);
}

TEST_F(OnAGpu, EventsAreMovedByEachLaunchOfARecording) {
  const Buffer from = on_gpu();
  const Buffer to = on_gpu();
  Stream stream(kGpu);
  Event begin = stream.record_timed();
  Event end = stream.record_timed();
  const auto enqueue = [&] {
    stream.record(begin);
    copy(to.data(), from.data(), kBytes, stream);
    stream.record(end);
  };
  enqueue();
  stream.synchronize();
  EXPECT_GT(end.seconds_since(begin), 0);
  Recorder recorder(stream);
  enqueue();
  Recording recording = recorder.finish();
  for (int launch = 0; launch < 3; ++launch) {
    const Event before = stream.record_timed();
    recording.launch(stream);
    const Event after = stream.record_timed();
    stream.synchronize();
    EXPECT_GT(end.seconds_since(begin), 0);
    EXPECT_GE(begin.seconds_since(before), 0);
    EXPECT_GE(after.seconds_since(end), 0);
  }
}

TEST_F(OnAGpu, StreamsWaitForEachOther) {
  Stream first(kGpu);
  Stream second(kGpu);
  Stream host(Device{});
  EXPECT_EQ(first.device(), kGpu);
  const Buffer there = on_gpu();
  const Buffer back = pinned(0);
  for (int round = 1; round <= 5; ++round) {
    const Buffer values = pinned(static_cast<float>(round));
    copy(there.data(), values.data(), kBytes, first);
    second.wait(first.record());
    copy(back.data(), there.data(), kBytes, second);
    const Event copied = second.record();
    first.wait(copied);  // before the next round writes
    host.wait(copied);
    EXPECT_TRUE(copied.is_complete());
    ASSERT_THAT(back.as<float>(), Each(static_cast<float>(round)));
    first.synchronize();
  }
}

TEST_F(OnAGpu, RecordedWorkReadsCurrentValues) {
  Stream stream(kGpu);
  const Buffer values = pinned(1);
  const Buffer there = on_gpu();
  const Buffer back = pinned(0);
  ASSERT_TRUE(Recording::is_possible(stream));
  Recorder recorder(stream);
  copy(there.data(), values.data(), kBytes, stream);
  copy(back.data(), there.data(), kBytes, stream);
  Recording recording = recorder.finish();
  stream.synchronize();
  EXPECT_THAT(back.as<float>(), Each(1.0F)) << "recorded work also runs at once";
  for (const float value : {2.0F, 3.0F}) {
    std::ranges::fill(values.as<float>(), value);
    recording.launch(stream);
    stream.synchronize();
    EXPECT_THAT(back.as<float>(), Each(value));
  }
}

TEST_F(OnAGpu, RecordingsIncludeOtherStreams) {
  Stream stream(kGpu);
  Stream other(kGpu);
  const Buffer values = pinned(1);
  const Buffer there = on_gpu();
  const Buffer back = pinned(0);
  Recorder recorder(stream);
  copy(there.data(), values.data(), kBytes, stream);
  other.wait(stream.record());
  copy(back.data(), there.data(), kBytes, other);
  stream.wait(other.record());
  Recording recording = recorder.finish();
  std::ranges::fill(values.as<float>(), 2.0F);
  stream.synchronize();
  recording.launch(stream);
  stream.synchronize();
  EXPECT_THAT(back.as<float>(), Each(2.0F));
}

TEST_F(OnAGpu, RecordingsPauseForTheHost) {
  Stream stream(kGpu);
  const Buffer values = pinned(1);
  const Buffer there = on_gpu();
  const Buffer back = pinned(0);
  std::vector<float> seen;
  Recorder recorder(stream);
  copy(there.data(), values.data(), kBytes, stream);
  copy(back.data(), there.data(), kBytes, stream);
  recorder.pause([&] {
    stream.synchronize();
    seen.push_back(back.as<float>().back());
    std::ranges::fill(values.as<float>(), 10 + seen.back());
  });
  copy(back.data(), values.data(), kBytes, stream);
  Recording recording = recorder.finish();
  stream.synchronize();
  EXPECT_THAT(back.as<float>(), Each(11.0F));
  recording.launch(stream);
  stream.synchronize();
  EXPECT_THAT(back.as<float>(), Each(21.0F));
  EXPECT_THAT(seen, ElementsAre(1.0F, 11.0F));
}

// An unfinished recording is discarded, and the stream remains usable.
TEST_F(OnAGpu, AbandonedRecordingLeavesTheStreamUsable) {
  Stream stream(kGpu);
  const Buffer values = pinned(1);
  const Buffer there = on_gpu();
  {
    Recorder recorder(stream);
    copy(there.data(), values.data(), kBytes, stream);
  }
  HostView view(there.as<float>(), stream);
  EXPECT_THAT(view.values(), Each(0.0F));
}

}  // namespace
}  // namespace lockstep::inline v0::device
