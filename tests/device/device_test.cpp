#include "lockstep/device/device.h"
#include "lockstep/device/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseDevices, ReadsALogicalDeviceTwice) {
  EXPECT_THAT(parse_devices("cpu:0,cpu:0"),
              ElementsAre(Device{DeviceKind::cpu, 0}, Device{DeviceKind::cpu, 0}));
}

TEST(ParseDevices, AutoIsEveryGpuOrTheCpu) {
  const auto devices = parse_devices("auto");
  if (gpu_is_available())
    EXPECT_EQ(devices.size(), list_gpus().size());
  else
    EXPECT_THAT(devices, ElementsAre(Device{DeviceKind::cpu, 0}));
}

TEST(ParseDevices, ReportsTheGrammar) {
  for (const char* text :
       {"", "cpu", "cpu:", "cpu:x", "tpu:0", "cpu:0,,cpu:0", "cpu:-1", "gpu:1x"}) {
    try {
      parse_devices(text);
      FAIL() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::input) << text;
      EXPECT_THAT(error.what(), HasSubstr("expected devices such as cpu:0, gpu:1")) << text;
    }
  }
}

TEST(ParseDevices, AMissingGpuIsADeviceError) {
  try {
    parse_devices("gpu:99");
    FAIL() << "gpu:99 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::device);
    EXPECT_THAT(error.what(), HasSubstr("[devices] expected gpu:99; "));
  }
}

TEST(HostAllocator, AllocatesZeroedAlignedMemory) {
  HostAllocator allocator;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{5} << 20}) {
    Buffer buffer = allocator.allocate(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    for (const std::uint8_t byte : buffer.as<std::uint8_t>()) ASSERT_EQ(byte, 0);
  }
}

}  // namespace
}  // namespace lockstep::inline v0::device
