// cuDNN's graph API: descriptors, and the plans that run a graph of operations in one go.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/model/cuda/context.h"

namespace lockstep::model::cuda {

/// How cuDNN calls the type of an attribute.
template <typename T>
constexpr cudnnBackendAttributeType_t attribute_type() {
  if constexpr (std::is_same_v<T, float>) return CUDNN_TYPE_FLOAT;
  if constexpr (std::is_same_v<T, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
  if constexpr (std::is_same_v<T, cudnnGenStatsMode_t>) return CUDNN_TYPE_GENSTATS_MODE;
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  if constexpr (std::is_same_v<T, std::int64_t>) return CUDNN_TYPE_INT64;
}

/// A tensor, an operation, a graph of them, a way to run it: attributes are set, then it is finalized. Outlives those
/// that it is an attribute of. Members throw Error (device) where cuDNN refuses.
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
  GraphDescriptor& refer_to(cudnnBackendAttributeName_t name, std::span<const GraphDescriptor* const> others);

  GraphDescriptor& finalize();
  /// Finalizes it; false where cuDNN has no way to do what is described.
  [[nodiscard]] bool try_to_finalize();

  cudnnBackendDescriptor_t get() const { return handle_.get(); }

 private:
  GraphDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
                       const void* values);

  Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> handle_;
};

using TensorSizes = std::array<std::int64_t, 4>;

/// A dense tensor [n, c, h, w] with the channels innermost, known in its graph as `id`. Its memory is aligned to 16
/// bytes.
GraphDescriptor describe_tensor(std::int64_t id, cudnnDataType_t type, const TensorSizes& sizes);

/// How cuDNN's rules `mode` would run `graph`, what they take for the fastest first; none where they know no way. On
/// the GPU of the graph's handle, or on one of the properties `gpu`.
std::vector<GraphDescriptor> engine_configurations(const GraphDescriptor& graph, cudnnBackendHeurMode_t mode,
                                                   const GraphDescriptor* gpu = nullptr);

/// One way to run a graph.
class GraphPlan {
 public:
  /// None where this way is none on the handle's GPU. May compile kernels. `configuration` outlives the plan.
  static std::optional<GraphPlan> of(cudnnHandle_t handle, const GraphDescriptor& configuration);

  std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// Puts the graph on the handle's stream: its tensors `ids` lie at `memory`, one for one. `workspace` has the plan's
  /// bytes. Nothing is allocated where the addresses are those of the call before.
  void run(cudnnHandle_t handle, std::span<const std::int64_t> ids, std::span<void* const> memory, void* workspace);

 private:
  GraphPlan(GraphDescriptor plan, std::size_t workspace_bytes)
      : plan_(std::move(plan)), workspace_bytes_(workspace_bytes) {}

  GraphDescriptor plan_;
  std::size_t workspace_bytes_;
  std::optional<GraphDescriptor> pack_;  // the addresses below, as cuDNN wants them
  std::vector<void*> memory_;
  void* workspace_ = nullptr;
};

}  // namespace lockstep::model::cuda
