#include "lockstep/device/gpu_health.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/paths.h"

namespace lockstep::inline v0::device {
namespace {

TEST(GpuHealth, IsReadFromTheManagementLibrary) {
  // A library that is already loaded is found by its name.
  ASSERT_NE(dlopen(LOCKSTEP_PRETEND_NVML, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  const auto gpus = list_gpu_health();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].name, "Pretended GPU");
  EXPECT_EQ(gpus[0].uuid, "GPU-sound");
  EXPECT_EQ(gpus[0].total_bytes, 80'000'000'000);
  EXPECT_EQ(gpus[0].used_bytes, 1'000'000'000);
  EXPECT_EQ(gpus[0].uncorrected_errors, -1) << "without ECC";
  EXPECT_FALSE(gpus[0].is_slowed) << "idle is not throttled";
  EXPECT_EQ(gpus[1].uncorrected_errors, 7) << "uncorrected, since the driver was loaded";
  EXPECT_TRUE(gpus[1].is_slowed);
  EXPECT_FALSE(gpus[1].needs_reset) << "unknown to this driver";
}

}  // namespace
}  // namespace lockstep::inline v0::device
