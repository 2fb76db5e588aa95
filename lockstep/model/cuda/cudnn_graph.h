// cuDNN's graph API: descriptors, and plans that execute a graph of operations in one call.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/model/cuda/context.h"

namespace lockstep::inline v0::model::cuda {

/// The cuDNN constant for the type of an attribute.
template <typename T>
constexpr cudnnBackendAttributeType_t attribute_type() {
  if constexpr (std::is_same_v<T, float>) return CUDNN_TYPE_FLOAT;
  if constexpr (std::is_same_v<T, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
  if constexpr (std::is_same_v<T, cudnnGenStatsMode_t>) return CUDNN_TYPE_GENSTATS_MODE;
  if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>) return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  if constexpr (std::is_same_v<T, std::int64_t>) return CUDNN_TYPE_INT64;
}

/// A tensor, an operation, a graph or an engine configuration: attributes are set, then it is
/// finalized. It must outlive the descriptors that have it as an attribute. Members throw Error
/// (device) if cuDNN refuses.
class GraphDescriptor {
 public:
  explicit GraphDescriptor(cudnnBackendDescriptorType_t type);

  template <typename T>
  GraphDescriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, attribute_type<T>(), 1, &value);
  }
  template <typename T>
  GraphDescriptor& set_all(cudnnBackendAttributeName_t name, std::span<const T> values) {
    return set(name, attribute_type<T>(), values.size(), values.data());
  }
  GraphDescriptor& refer_to(cudnnBackendAttributeName_t name, const GraphDescriptor& other);
  GraphDescriptor& refer_to(cudnnBackendAttributeName_t name,
                            std::span<const GraphDescriptor* const> others);

  GraphDescriptor& finalize();
  /// Finalizes it; returns false if cuDNN does not support the described operation.
  [[nodiscard]] bool try_to_finalize();

  cudnnBackendDescriptor_t get() const { return handle_.get(); }

 private:
  GraphDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       std::size_t count, const void* values);

  Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> handle_;
};

using TensorSizes = std::array<std::int64_t, 4>;

/// A dense tensor [n, c, h, w] with channels last and the id `id` in its graph. Its memory is
/// 16-byte aligned; a virtual one has none, it is only passed from one operation to the next.
GraphDescriptor describe_tensor(std::int64_t id, cudnnDataType_t type, const TensorSizes& sizes,
                                bool is_virtual = false);

/// The location of a tensor of a graph.
enum class TensorMemory {
  gpu,   ///< 16-byte aligned memory of the GPU
  host,  ///< one value in host memory, read when the graph is enqueued
  none   ///< virtual: it is only passed from one operation to the next
};

/// A tensor with the given strides, in elements.
GraphDescriptor describe_tensor(std::int64_t id, cudnnDataType_t type, const TensorSizes& sizes,
                                const TensorSizes& strides, TensorMemory memory);

/// The maximum workspace of a cuDNN operation, which limits its share of a step's memory.
constexpr std::size_t kMaxWorkspace = std::size_t{1} << 30;

/// What the engine of a graph must guarantee.
struct EngineRequirements {
  bool exact = false;          ///< rounds no factor to fewer bits, as TF32 does
  bool deterministic = false;  ///< produces the same bits in every run
  /// May compile its kernels when a plan is created, which may take seconds.
  bool may_compile = false;
};
EngineRequirements requirements(const ComputeOptions& options);

/// The engine configurations that cuDNN's heuristics propose for `graph`, the presumably fastest
/// first, then those that are likely to work; empty if it has none. For the GPU of the graph's
/// handle, or for a GPU with the properties `gpu`.
std::vector<GraphDescriptor> usable_configurations(const GraphDescriptor& graph,
                                                   const EngineRequirements& required,
                                                   const GraphDescriptor* gpu = nullptr);

/// An execution plan of a graph.
class GraphPlan {
 public:
  /// nullopt if the configuration does not work on the handle's GPU. May compile kernels.
  /// `configuration` must outlive the plan.
  static std::optional<GraphPlan> create(cudnnHandle_t handle,
                                         const GraphDescriptor& configuration);

  /// A copy of the plan with its own addresses. The plan's dependencies must outlive it, too.
  GraphPlan shared() const { return GraphPlan(plan_, workspace_bytes_); }

  std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// Enqueues the graph on the handle's stream: its tensors `ids` are at the addresses `memory`, in
  /// the same order. `workspace` has the size that the plan needs. Does not allocate if the
  /// addresses are those of the previous call.
  void run(cudnnHandle_t handle, std::span<const std::int64_t> ids, std::span<void* const> memory,
           void* workspace);

 private:
  GraphPlan(std::shared_ptr<const GraphDescriptor> plan, std::size_t workspace_bytes)
      : plan_(std::move(plan)), workspace_bytes_(workspace_bytes) {}

  std::shared_ptr<const GraphDescriptor> plan_;
  std::size_t workspace_bytes_;
  std::optional<GraphDescriptor> pack_;  // the addresses below as a cuDNN variant pack
  std::vector<void*> memory_;
  void* workspace_ = nullptr;
};

}  // namespace lockstep::inline v0::model::cuda
