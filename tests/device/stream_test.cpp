#include "lockstep/device/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::device {
namespace {

using ::testing::HasSubstr;

TEST(CpuStream, IsAlwaysComplete) {
  Stream compute(Device{});
  Stream communication(Device{});
  EXPECT_EQ(compute.device(), Device{});

  const Event event = compute.record();
  EXPECT_TRUE(event.is_complete());
  EXPECT_NO_THROW(event.synchronize());
  EXPECT_NO_THROW(communication.wait(event));
  EXPECT_NO_THROW(communication.synchronize());
}

TEST(CpuStream, MeasuresTheTimeBetweenTwoEvents) {
  Stream stream(Device{});
  const Event first = stream.record_timed();
  const Event second = stream.record_timed();
  const Event third = stream.record_timed();
  EXPECT_GT(third.seconds_since(first), 0);
  EXPECT_GE(third.seconds_since(first), third.seconds_since(second));
}

TEST(CpuStream, MovesAnEventToItsEnd) {
  Stream stream(Device{});
  Event moved = stream.record_timed();
  const Event second = stream.record_timed();
  stream.record(moved);
  EXPECT_TRUE(moved.is_complete());
  EXPECT_GE(moved.seconds_since(second), 0);
}

TEST(CpuStream, MovesWithItsDevice) {
  Stream first(Device{});
  Stream second = std::move(first);
  EXPECT_EQ(second.device(), Device{});
  EXPECT_TRUE(second.record().is_complete());
}

TEST(GpuStream, RefusesAGpuThatIsNotThere) {
  try {
    Stream stream(Device{DeviceKind::gpu, 99});
    FAIL() << "gpu:99 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::device);
    EXPECT_THAT(error.what(), HasSubstr("[gpu] expected gpu:99; "));
    EXPECT_THAT(error.what(), HasSubstr(gpu_unavailable_reason()));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::device
