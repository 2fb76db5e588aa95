// NVIDIA's management library on a host with two GPUs: a healthy one, and one with failing memory.
#include <cstdio>

namespace {

struct MemoryBytes {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

char gpus[2];  // handles are their addresses

bool is_sick(const void* gpu) { return gpu == &gpus[1]; }

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** gpu) {
  *gpu = &gpus[index];
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned int size) {
  std::snprintf(name, size, "Pretended GPU");
  return 0;
}
int nvmlDeviceGetUUID(void* gpu, char* uuid, unsigned int size) {
  std::snprintf(uuid, size, is_sick(gpu) ? "GPU-sick" : "GPU-sound");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, MemoryBytes* memory) {
  *memory = {80'000'000'000ULL, 79'000'000'000ULL, 1'000'000'000ULL};
  return 0;
}
// The first GPU has no ECC.
int nvmlDeviceGetTotalEccErrors(void* gpu, int type, int counter, unsigned long long* errors) {
  constexpr int kNotSupported = 3;
  if (!is_sick(gpu)) return kNotSupported;
  *errors = type == 1 && counter == 0 ? 7 : 1000;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* reasons) {
  *reasons = is_sick(gpu) ? 0x40 : 0x1;
  return 0;
}
// nvmlDeviceGetRemappedRows is younger than this driver.

}  // extern "C"
