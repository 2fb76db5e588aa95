// What cuDNN itself, without a GPU, says to the graph of a convolution with sums: whether it takes
// the description, and whether it has engines on a GPU of given properties.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/model/layers/conv_2d/summing_convolution.h"
#include "lockstep/model/layers/window.h"

namespace lockstep::model::cuda {
namespace {

// An H200, or with another `capability` what differs for engines, as cuDNN 9 writes the properties
// of a GPU.
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

// A convolution over `size` x `size` pixels of ResNet-50, 32 images.
struct Shape2D {
  std::int64_t size, channels, filters, kernel, stride;
};

SummingGraph graph_of(const Shape2D& shape, cudnnDataType_t type) {
  const Conv2DSpec spec{.batch = 32,
                        .window = window_geometry({shape.size, shape.size, shape.channels},
                                                  shape.kernel, shape.stride, Padding::symmetric),
                        .filters = shape.filters,
                        .bias = false,
                        .training = true,
                        .statistics = true};
  return {nullptr, type, spec, spec.window};
}

class CudnnGraph : public testing::Test {
 protected:
  // False where this cuDNN writes the properties of GPUs in another way.
  bool knows(int capability) {
    gpu_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    const std::string text = properties(capability);
    return cudnnBackendSetAttribute(gpu_->get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                    CUDNN_TYPE_CHAR, static_cast<std::int64_t>(text.size()),
                                    text.c_str()) == CUDNN_STATUS_SUCCESS &&
           cudnnBackendFinalize(gpu_->get()) == CUDNN_STATUS_SUCCESS;
  }

  // Of the ways that cuDNN's rules propose for that GPU, those that make a plan.
  int plans(const SummingGraph& graph) {
    int count = 0;
    for (const GraphDescriptor& way :
         engine_configurations(graph.whole(), CUDNN_HEUR_MODE_A, &*gpu_)) {
      GraphDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.refer_to(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *gpu_)
          .refer_to(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, way);
      count += plan.try_to_finalize() ? 1 : 0;
    }
    return count;
  }

  std::optional<GraphDescriptor> gpu_;
};

// Of each kind of convolution that ResNet-50 has behind its first.
constexpr std::array kShapes{Shape2D{56, 64, 64, 1, 1},   Shape2D{56, 64, 64, 3, 1},
                             Shape2D{56, 64, 256, 1, 1},  Shape2D{56, 128, 128, 3, 2},
                             Shape2D{56, 256, 512, 1, 2}, Shape2D{7, 512, 2048, 1, 1}};

TEST_F(CudnnGraph, IsTakenAsItIsDescribed) {
  for (const cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
    for (const Shape2D& shape : kShapes)
      EXPECT_NO_THROW(graph_of(shape, type)) << shape.size << ' ' << shape.filters;
}

TEST_F(CudnnGraph, HasEnginesForFloat16) {
  for (const int capability : {800, 900}) {
    if (!knows(capability))
      GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " describes GPUs in another way";
    const SummingGraph first = graph_of(kShapes[0], CUDNN_DATA_HALF);
    for (const GraphDescriptor& way :
         engine_configurations(first.whole(), CUDNN_HEUR_MODE_A, &*gpu_))
      EXPECT_FALSE(is_compiled_at_run_time(way)) << "without a GPU cuDNN lists none that is";
    for (const Shape2D& shape : kShapes)
      EXPECT_GT(plans(graph_of(shape, CUDNN_DATA_HALF)), 0)
          << capability << ' ' << shape.size << ' ' << shape.filters;
  }
}

}  // namespace
}  // namespace lockstep::model::cuda
