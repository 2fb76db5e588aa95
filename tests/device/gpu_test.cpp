#include "lockstep/device/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::device {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(Gpu, IsAvailableOrReportsWhyNot) {
  EXPECT_EQ(gpu_is_available(), gpu_unavailable_reason().empty());
  EXPECT_EQ(gpu_is_available(), !list_gpus().empty());
}

TEST(Gpu, ReportsHowToEnableIt) {
  if (gpu_is_available()) GTEST_SKIP() << "a GPU is available";
  const std::string what_to_do =
      cuda_built_version() == "absent" ? "-DLOCKSTEP_CUDA=ON" : "nvidia-smi";
  EXPECT_THAT(gpu_unavailable_reason(),
              AnyOf(HasSubstr(what_to_do), HasSubstr("update the driver")));
}

TEST(Gpu, HasVersionsOrTheWordAbsent) {
  for (const std::string& version : {cuda_built_version(), cuda_loaded_version()})
    EXPECT_THAT(version, AnyOf("absent", MatchesRegex("[0-9]+\\.[0-9]")));
  if (gpu_is_available()) {
    EXPECT_NE(cuda_built_version(), "absent");
    EXPECT_NE(cuda_loaded_version(), "absent");
  }
}

template <typename Call>
void expect_device_error(Call call, const std::string& message) {
  try {
    call();
    FAIL() << "no error; expected \"" << message << "\"";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::device);
    EXPECT_THAT(error.what(), HasSubstr(message));
    EXPECT_THAT(error.what(), HasSubstr(gpu_unavailable_reason()));
  }
}

TEST(GpuAllocator, RefusesAGpuThatIsNotThere) {
  expect_device_error([] { make_gpu_allocator(99); }, "[gpu] expected gpu:99; ");
  expect_device_error([] { gpu_free_bytes(99); }, "[gpu] expected gpu:99; ");
}

TEST(PinnedAllocator, NeedsAGpu) {
  if (gpu_is_available()) GTEST_SKIP() << "a GPU is available";
  expect_device_error([] { make_pinned_allocator(); }, "[gpu] expected gpu:0; ");
}

}  // namespace
}  // namespace lockstep::inline v0::device
