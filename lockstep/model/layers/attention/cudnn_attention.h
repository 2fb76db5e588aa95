// Attention by cuDNN, where it has an engine for it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/cudnn_graph.h"
#include "lockstep/model/layers/attention/attention.h"
#include "lockstep/model/layers/attention/attention_graph.h"
#include "lockstep/model/layers/attention/kernels.h"

namespace lockstep::inline v0::model::cuda {

/// The passes of an attention by cuDNN. Forward saves what our own kernels save.
class CudnnAttention {
 public:
  /// Creates the plans, which operations of the same shape share; the first of a shape compiles
  /// kernels. Null if cuDNN has no engine. Throws Error (device).
  static std::unique_ptr<CudnnAttention> create(Context& context, const AttentionSpec& spec);

  /// Bytes of the workspaces of a pass.
  std::size_t scratch_bytes() const { return scratch_.bytes(); }

  /// Enqueue a pass; `scratch` has scratch_bytes(). AttentionArrays::products and rotations are not
  /// used. Backward computes all gradients: none is empty.
  void forward(const AttentionArrays& arrays, std::span<std::byte> scratch);
  void backward(const AttentionArrays& arrays, std::span<std::byte> scratch);  ///< see forward()

 private:
  struct Planned;

  static std::shared_ptr<const Planned> plan(Context& context, const AttentionSpec& spec,
                                             AttentionPass pass);
  CudnnAttention(Context& context, const AttentionSpec& spec,
                 std::shared_ptr<const Planned> forward, std::shared_ptr<const Planned> backward);
  void run(GraphPlan& plan, const Planned& planned, const AttentionArrays& arrays,
           std::span<std::byte> scratch);

  Context& context_;
  AttentionSpec spec_;
  std::shared_ptr<const Planned> forward_;
  std::shared_ptr<const Planned> backward_;  // null in inference
  GraphPlan forward_plan_;
  std::optional<GraphPlan> backward_plan_;
  ScratchPlan scratch_;
  std::size_t workspace_at_;
  std::size_t products_at_;
  std::size_t query_sums_at_;
  float scale_;  // like the next two, read from host memory
  float hidden_;
  float one_ = 1;
};

/// The reason, by `options` and `spec` alone, why no engine of cuDNN computes this attention; empty
/// if one may.
std::string reason_for_own_kernels(const ComputeOptions& options, const AttentionSpec& spec);

/// The implementation of `spec`: cuDNN's, or null for our own kernels. Records the choice and its
/// reason (Context::note).
std::unique_ptr<CudnnAttention> choose_attention(Context& context, const AttentionSpec& spec);

}  // namespace lockstep::inline v0::model::cuda
