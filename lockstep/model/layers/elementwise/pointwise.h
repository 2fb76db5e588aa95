// Layers that apply one function to each element.
#pragma once

#include <memory>
#include <string>

#include "lockstep/model/layers/builtin_layer.h"

namespace lockstep::model {

/// What all FunctionLayer layers have in common.
class PointwiseLayer : public BuiltinLayer {
 public:
  Shape build(BuildContext& context) const final { return context.input(); }
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const final;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const final;
};

/// A layer of the function `F`, which the operations of all devices call. The layer must be in
/// kLayers (layers.h): operations are compiled for the functions that they find there.
///
///     struct TanhFunction {
///       static constexpr const char* kKind = "tanh";        // Layer::kind()
///       static constexpr float forward(float x);            // y, of one element
///       static constexpr float gradient(float y, float dy); // of x, from y and its gradient
///     };
template <typename F>
class FunctionLayer final : public PointwiseLayer {
 public:
  using Function = F;  ///< the function of one element
  std::string kind() const override { return F::kKind; }
};

}  // namespace lockstep::model
