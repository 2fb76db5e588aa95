#include "lockstep/device/gpu_health.h"

#include <array>
#include <cstddef>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/system/loaded_library.h"

namespace lockstep::inline v0::device {
namespace {

// From the reference documentation of NVML. Declared here instead of including its header, so that
// a build without CUDA can use NVML too.
using Handle = void*;
constexpr int kSuccess = 0;
constexpr int kUncorrected = 1;  // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kVolatile = 0;     // NVML_VOLATILE_ECC: since the driver was loaded
// Slowdown by the hardware, its thermal part, its power brake.
constexpr unsigned long long kSlowedByHardware = 0x8 | 0x40 | 0x80;
constexpr std::size_t kTextBytes = 96;

struct MemoryBytes {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

/// NVML, initialized; shut down by the destructor.
class Management {
 public:
  Management()
      : library_({.name = "NVML",
                  .file = "libnvidia-ml.so.1",
                  .folder = "",
                  .use = "the health of GPUs",
                  .advice = "install NVIDIA's driver"}) {
    if (library_.function<int()>("nvmlInit_v2")() != kSuccess)
      throw Error(ErrorCategory::device, "NVML", "expected nvmlInit_v2 to succeed", "it failed");
  }
  Management(const Management&) = delete;
  Management& operator=(const Management&) = delete;
  ~Management() {
    try {
      library_.function<int()>("nvmlShutdown")();
    } catch (const Error&) {
      // A library without this function has nothing to shut down.
      static_cast<void>(0);
    }
  }

  std::vector<GpuHealth> gpus() const {
    unsigned int count = 0;
    library_.function<int(unsigned int*)>("nvmlDeviceGetCount_v2")(&count);
    std::vector<GpuHealth> all;
    for (unsigned int index = 0; index < count; ++index) {
      Handle gpu = nullptr;
      if (library_.function<int(unsigned int, Handle*)>("nvmlDeviceGetHandleByIndex_v2")(
              index, &gpu) == kSuccess)
        all.push_back(health_of(gpu));
    }
    return all;
  }

 private:
  // Older drivers lack some functions, and some GPUs lack some features: the output argument then
  // stays unchanged.
  template <typename... Parameters, typename... Arguments>
  bool query(const char* name, Handle gpu, Arguments... arguments) const {
    try {
      return library_.function<int(Handle, Parameters...)>(name)(gpu, arguments...) == kSuccess;
    } catch (const Error&) {
      return false;
    }
  }

  GpuHealth health_of(Handle gpu) const {
    GpuHealth health;
    std::array<char, kTextBytes> text{};
    const auto size = static_cast<unsigned int>(text.size());
    if (query<char*, unsigned int>("nvmlDeviceGetName", gpu, text.data(), size))
      health.name = text.data();
    if (query<char*, unsigned int>("nvmlDeviceGetUUID", gpu, text.data(), size))
      health.uuid = text.data();
    MemoryBytes memory;
    if (query<MemoryBytes*>("nvmlDeviceGetMemoryInfo", gpu, &memory)) {
      health.total_bytes = static_cast<std::int64_t>(memory.total);
      health.used_bytes = static_cast<std::int64_t>(memory.used);
    }
    unsigned long long errors = 0;
    if (query<int, int, unsigned long long*>("nvmlDeviceGetTotalEccErrors", gpu, kUncorrected,
                                             kVolatile, &errors))
      health.uncorrected_errors = static_cast<std::int64_t>(errors);
    unsigned int corrected_rows = 0;
    unsigned int uncorrected_rows = 0;
    unsigned int pending = 0;
    unsigned int failed = 0;
    if (query<unsigned int*, unsigned int*, unsigned int*, unsigned int*>(
            "nvmlDeviceGetRemappedRows", gpu, &corrected_rows, &uncorrected_rows, &pending,
            &failed)) {
      health.needs_reset = pending != 0;
      health.lacks_spare_rows = failed != 0;
    }
    unsigned long long reasons = 0;
    if (query<unsigned long long*>("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, &reasons))
      health.is_slowed = (reasons & kSlowedByHardware) != 0;
    return health;
  }

  LoadedLibrary library_;
};

}  // namespace

std::vector<GpuHealth> list_gpu_health() noexcept {
  try {
    return Management().gpus();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace lockstep::inline v0::device
