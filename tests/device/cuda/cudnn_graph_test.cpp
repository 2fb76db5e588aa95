// The graph API of the simulated cuDNN: the engines that it proposes and the calls that it rejects,
// like the library. The tests of models compare its results with the CPU.
#include <cudnn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/device/cuda/handles.h"
#include "tests/support/pretend_cuda/machine.h"

namespace lockstep::inline v0::device::cuda {
namespace {

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cudnnBackendCreateDescriptor(type, &handle_);
  }
  ~Descriptor() {
    if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  cudnnBackendDescriptor_t get() const { return handle_; }
  template <typename T>
  cudnnStatus_t set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    const std::vector<T>& values) {
    return cudnnBackendSetAttribute(handle_, name, type, std::ssize(values), values.data());
  }
  cudnnStatus_t refer_to(cudnnBackendAttributeName_t name,
                         std::vector<cudnnBackendDescriptor_t> others) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, others);
  }
  cudnnStatus_t finalize() { return cudnnBackendFinalize(handle_); }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

Descriptor tensor(std::int64_t id, const std::vector<std::int64_t>& sizes,
                  cudnnDataType_t type = CUDNN_DATA_HALF) {
  const std::vector<std::int64_t> strides{sizes[1] * sizes[2] * sizes[3], 1, sizes[3] * sizes[1],
                                          sizes[1]};
  Descriptor one(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  one.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector{id});
  one.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type});
  one.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes);
  one.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
  one.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector<std::int64_t>{16});
  EXPECT_EQ(one.finalize(), CUDNN_STATUS_SUCCESS);
  return one;
}

// Two images of 3x3 with two channels, four filters of 2x2.
class Graph {
 public:
  explicit Graph(cudnnDataType_t type = CUDNN_DATA_HALF)
      : x(tensor(1, {2, 2, 3, 3}, type)),
        w(tensor(2, {4, 2, 2, 2}, type)),
        y(tensor(3, {2, 4, 2, 2}, type)) {
    cudnnCreate(&handle);
    cudnnSetStream(handle, stream.get());
    const std::vector<std::int64_t> ones{1, 1};
    const std::vector<std::int64_t> zeros{0, 0};
    window.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
               std::vector{CUDNN_DATA_FLOAT});
    window.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
               std::vector{CUDNN_CROSS_CORRELATION});
    window.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::vector<std::int64_t>{2});
    window.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, ones);
    window.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, ones);
    window.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, zeros);
    window.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, zeros);
    EXPECT_EQ(window.finalize(), CUDNN_STATUS_SUCCESS);
    forward.refer_to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, {window.get()});
    forward.refer_to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, {x.get()});
    forward.refer_to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, {w.get()});
    forward.refer_to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, {y.get()});
    forward.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT,
                std::vector{1.0F});
    forward.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::vector{0.0F});
    EXPECT_EQ(forward.finalize(), CUDNN_STATUS_SUCCESS);
    statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE,
                   std::vector{CUDNN_GENSTATS_SUM_SQSUM});
    statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                   std::vector{CUDNN_DATA_FLOAT});
    statistics.refer_to(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, {y.get()});
    statistics.refer_to(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, {sums.get()});
    statistics.refer_to(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, {squares.get()});
    EXPECT_EQ(statistics.finalize(), CUDNN_STATUS_SUCCESS);
    whole.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
    whole.refer_to(CUDNN_ATTR_OPERATIONGRAPH_OPS, {forward.get(), statistics.get()});
    EXPECT_EQ(whole.finalize(), CUDNN_STATUS_SUCCESS);
    rules.refer_to(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {whole.get()});
    rules.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{CUDNN_HEUR_MODE_A});
  }
  ~Graph() {
    cudaStreamSynchronize(stream.get());
    cudnnDestroy(handle);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::vector<Descriptor> configurations() {
    EXPECT_EQ(rules.finalize(), CUDNN_STATUS_SUCCESS);
    std::int64_t count = 0;
    cudnnBackendGetAttribute(rules.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
    std::vector<Descriptor> all;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (std::int64_t i = 0; i < count; ++i)
      handles.push_back(all.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    EXPECT_EQ(
        cudnnBackendGetAttribute(rules.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, handles.data()),
        CUDNN_STATUS_SUCCESS);
    while (std::ssize(all) > count) all.pop_back();
    return all;
  }
  Descriptor plan(const Descriptor& configuration) const {
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
    plan.refer_to(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {configuration.get()});
    return plan;
  }

  StreamHandle stream = make_stream();
  cudnnHandle_t handle = nullptr;
  Descriptor x;
  Descriptor w;
  Descriptor y;
  Descriptor sums = tensor(4, {1, 4, 1, 1}, CUDNN_DATA_FLOAT);
  Descriptor squares = tensor(5, {1, 4, 1, 1}, CUDNN_DATA_FLOAT);
  Descriptor window{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR};
  Descriptor forward{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR};
  Descriptor statistics{CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR};
  Descriptor whole{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  Descriptor rules{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
};

Descriptor pack(const std::vector<std::int64_t>& ids, const std::vector<void*>& memory,
                void* workspace) {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, memory);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector{workspace});
  EXPECT_EQ(pack.finalize(), CUDNN_STATUS_SUCCESS);
  return pack;
}

TEST(CudnnGraph, ProposesAnEngineThatDoesNotWork) {
  Graph graph;
  std::vector<cudnnStatus_t> statuses;
  for (const Descriptor& configuration : graph.configurations())
    statuses.push_back(graph.plan(configuration).finalize());
  EXPECT_THAT(statuses, testing::ElementsAre(CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_SUCCESS,
                                             CUDNN_STATUS_SUCCESS));
}

TEST(CudnnGraph, HasNoEnginesInFloat32OrWithoutSupport) {
  Graph wide(CUDNN_DATA_FLOAT);
  EXPECT_EQ(wide.rules.finalize(), CUDNN_STATUS_NOT_SUPPORTED);
  Graph graph;
  const pretend::Machine machine({.sums_convolutions = false});
  EXPECT_EQ(graph.rules.finalize(), CUDNN_STATUS_NOT_SUPPORTED);
}

TEST(CudnnGraph, RejectsInvalidDescriptors) {
  Descriptor one(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_EQ(one.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, std::vector{1.0F}),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(
      one.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{CUDNN_HEUR_MODE_A}),
      CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(one.finalize(), CUDNN_STATUS_BAD_PARAM) << "nothing is set";
  Descriptor forward(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  EXPECT_EQ(forward.refer_to(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, {one.get()}),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  Descriptor two = tensor(1, {1, 1, 1, 1});
  EXPECT_EQ(two.finalize(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(two.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector<std::int64_t>{2}),
            CUDNN_STATUS_NOT_INITIALIZED);
}

TEST(CudnnGraph, RejectsMemoryOfTheWrongSize) {
  Graph graph;
  const std::vector<Descriptor> configurations = graph.configurations();
  Descriptor plan = graph.plan(configurations.at(2));
  ASSERT_EQ(plan.finalize(), CUDNN_STATUS_SUCCESS);
  const Elements<std::byte> memory(4096);
  void* const at = memory.get();
  const auto run = [&](const std::vector<std::int64_t>& ids, const std::vector<void*>& addresses,
                       void* workspace) {
    return cudnnBackendExecute(graph.handle, plan.get(), pack(ids, addresses, workspace).get());
  };
  EXPECT_EQ(run({1, 2, 3, 4}, {at, at, at, at}, at), CUDNN_STATUS_BAD_PARAM)
      << "an address is missing";
  EXPECT_EQ(run({1, 2, 3, 4, 5}, {at, at, at, at, memory.get() + 4}, at),
            CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  EXPECT_EQ(run({1, 2, 3, 4, 5}, {at, at, at, at, at}, nullptr),
            CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
}

TEST(CudnnGraphDeathTest, EndsTheProgramForADestroyedDescriptor) {
  EXPECT_DEATH(
      {
        cudnnBackendDescriptor_t gone = nullptr;
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &gone);
        cudnnBackendDestroyDescriptor(gone);
        cudnnBackendFinalize(gone);
      },
      "CUDA was misused: cuDNN was given a descriptor that is gone");
}

}  // namespace
}  // namespace lockstep::inline v0::device::cuda
