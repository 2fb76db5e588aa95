#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct AdditiveAttentionSpec;

/// Additive attention (Bahdanau et al., arXiv 1409.0473) without projections, as Keras's
/// AdditiveAttention: the output at each query position is the mean of the values, weighted by the
/// softmax over the keys of the sum of scale · tanh(query + key).
///
/// Inputs: queries [T, U], keys [S, U] and values [S, D]. Output [T, D]. Array "scale" [U],
/// initially Glorot uniform.
///
/// An additional input, an int32 input [S] of the network, holds the segments of the keys: segment
/// 0 is padding, which has no weight. The output is 0 if all keys are padding.
class AdditiveAttention final : public BuiltinLayer {
 public:
  std::string kind() const override { return "additive_attention"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  std::int64_t flop(const CompileContext& context) const override;
  Traits traits() const override;
  std::optional<std::size_t> index_input(std::size_t inputs) const override;

 private:
  AdditiveAttentionSpec spec(const CompileContext& context) const;
};

/// An additive attention for one batch size.
struct AdditiveAttentionSpec {
  std::int64_t batch = 0;     ///< samples
  std::int64_t queries = 0;   ///< T
  std::int64_t keys = 0;      ///< S
  std::int64_t units = 0;     ///< U
  std::int64_t width = 0;     ///< D
  bool has_segments = false;  ///< whether there may be padding
  bool training = false;      ///< whether a backward pass follows
};

}  // namespace lockstep::inline v0::model
