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

namespace lockstep::model::cuda {

/// The passes of an attention by cuDNN. What forward saves is what our own kernels save.
class CudnnAttention {
 public:
  /// The plans, which operations of the same shape share; makes them if they are the first of that
  /// shape, which compiles kernels. Null if cuDNN has no engine. Throws Error (device).
  static std::unique_ptr<CudnnAttention> of(Context& context, const AttentionSpec& spec);

  /// Bytes of the workspaces of a pass.
  std::size_t scratch_bytes() const { return scratch_.bytes(); }

  /// Enqueue a pass; `scratch` has scratch_bytes(). AttentionArrays::products and rotations are not
  /// used. In backward no gradient is empty.
  void forward(const AttentionArrays& arrays, std::span<std::byte> scratch);
  void backward(const AttentionArrays& arrays, std::span<std::byte> scratch);  ///< likewise

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
  float scale_;  // read from host memory, as the next two
  float hidden_;
  float one_ = 1;
};

/// Why cuDNN does not compute this attention, whatever its engines are: it depends on `options` and
/// `spec` alone. Empty if it may.
std::string reason_for_own_kernels(const ComputeOptions& options, const AttentionSpec& spec);

/// The implementation of `spec`: cuDNN's, or null for our own kernels. Notes which, and why
/// (Context::note).
std::unique_ptr<CudnnAttention> choose_attention(Context& context, const AttentionSpec& spec);

}  // namespace lockstep::model::cuda
