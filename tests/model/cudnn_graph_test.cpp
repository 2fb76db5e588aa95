// What cuDNN itself, without a GPU, says to the graph of a convolution with sums: whether it takes the description, and
// whether it has engines on a GPU of given properties.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "model/cuda/summing_convolution.h"
#include "model/layers/window.h"

namespace lockstep::model::cuda {
namespace {

// An H200, or with another `capability` what differs for engines, as cuDNN 9 writes the properties of a GPU.
std::string properties(int capability) {
  const int shared = capability < 900 ? 166912 : 232448;
  return fmt::format(
      R"({{"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "deviceVer": {}, )"
      R"("driverVer": 13000, "cudaDeviceId": 0, "totalGlobalMem": 150000000000, "multiProcessorCount": 132, )"
      R"("smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "regsPerBlock": 65536, "l2CacheSize": 52428800, )"
      R"("warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": {}, )"
      R"("reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0, "maxCtasPerSM": 32, )"
      R"("maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1, )"
      R"("deviceName": "NVIDIA H200"}})",
      capability, shared);
}
