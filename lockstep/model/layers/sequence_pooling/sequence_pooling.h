// Pooling over the positions of a sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct SequencePoolingSpec;

/// Mean over the positions of a sequence: [T, D] to [D], as in Keras. An additional input, an int32
/// input [T] of the network, holds segments, as for Attention: positions of segment 0 are padding,
/// which the mean excludes. It is 0 if all are padding.
class GlobalAveragePooling1D final : public BuiltinLayer {
 public:
  std::string kind() const override { return "global_average_pooling1d"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override;
  std::optional<std::size_t> index_input(std::size_t inputs) const override;

 private:
  SequencePoolingSpec spec(const CompileContext& context) const;
};

/// A pooling over positions for one batch size.
struct SequencePoolingSpec {
  std::int64_t samples = 0;    ///< samples in the batch
  std::int64_t positions = 0;  ///< T
  std::int64_t width = 0;      ///< D
  bool has_segments = false;   ///< whether there may be padding
};

}  // namespace lockstep::inline v0::model
