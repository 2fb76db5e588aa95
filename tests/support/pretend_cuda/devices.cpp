// Devices: their number, the current one, their properties.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>

#include "tests/support/pretend_cuda/machine.h"

namespace {

namespace pretend = lockstep::pretend;

constinit thread_local int chosen_gpu = 0;

cudaError_t check_device(int device) {
  if (const cudaError_t status = pretend::readiness_without_context(); status != cudaSuccess)
    return status;
  return device >= 0 && device < pretend::machine().gpus ? cudaSuccess : cudaErrorInvalidDevice;
}

CUresult primary_context_state(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = pretend::gpus_with_context().contains(device) ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace

int pretend::current_gpu() { return chosen_gpu; }
void pretend::set_current_gpu(int gpu) { chosen_gpu = gpu; }

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = pretend::machine().driver_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const cudaError_t status = pretend::readiness_without_context();
  *count = status == cudaSuccess ? pretend::machine().gpus : 0;
  return pretend::answer(status);
}

cudaError_t cudaGetDevice(int* device) {
  *device = chosen_gpu;
  return pretend::answer(pretend::readiness_without_context());
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t status = check_device(device);
  if (status == cudaSuccess) {
    chosen_gpu = device;
    pretend::make_context(device);
  }
  return pretend::answer(status);
}

// The only driver function that the project queries.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool is_known = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
  *function = is_known ? reinterpret_cast<void*>(&primary_context_state) : nullptr;
  if (result != nullptr)
    *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return pretend::answer(pretend::readiness_without_context());
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t status = check_device(device); status != cudaSuccess)
    return pretend::answer(status);
  *properties = {};
  std::memcpy(properties->name, "Pretended GPU", sizeof("Pretended GPU"));
  properties->uuid.bytes[3] = static_cast<char>(pretend::machine().first_gpu + device);
  const std::size_t bytes = pretend::machine().bytes_per_gpu;
  properties->totalGlobalMem = bytes + bytes / 16 + 1;
  properties->major = 9;
  properties->minor = 0;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->multiProcessorCount = 4;
  properties->l2CacheSize = 1 << 16;
  properties->sharedMemPerBlock = 48UL * 1024;
  properties->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (const cudaError_t status = check_device(device); status != cudaSuccess)
    return pretend::answer(status);
  const std::string text = fmt::format("0000:{:02x}:00.0", device + 1);
  if (static_cast<std::size_t>(length) <= text.size())
    return pretend::answer(cudaErrorInvalidValue);
  std::memcpy(id, text.c_str(), text.size() + 1);
  return cudaSuccess;
}

}  // extern "C"
