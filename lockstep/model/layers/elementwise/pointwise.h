// Layers that apply one function to each element.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

/// Common base of all FunctionLayer classes.
class PointwiseLayer : public BuiltinLayer {
 public:
  /// Whether the function's gradient is computed from its input, not from its output.
  virtual bool gradient_reads_input() const = 0;
  /// The memory needs of the operations on all devices.
  Needs needs() const;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const final;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const final;
  Traits traits() const final { return {.incremental = true, .incremental_on_gpu = true}; }
};

/// A layer of the function `F`, which the operations of all devices call. The layer must be in
/// kLayers (layers.h): operations are compiled for the functions listed there.
///
///     struct TanhFunction {
///       static constexpr const char* kKind = "tanh";        // Layer::kind()
///       static constexpr float forward(float x);            // y, of one element
///       static constexpr float gradient(float y, float dy); // of x, from y and its gradient
///     };
///
/// If both are templates that also accept arrays of elements, as in tanh.h, a CPU computes them
/// with vector instructions.
///
/// If F has a member `kGradientReadsInput`, gradient() is called with x instead of y. The options
/// of a function are its data members; it then also has `static F read(JsonObject&)`,
/// `void write(nlohmann::json&) const` and, if not all values are valid,
/// `void check(const BuildContext&) const`.
template <typename F>
class FunctionLayer final : public PointwiseLayer {
 public:
  using Function = F;  ///< the function of one element
  /// Options are checked when the layer is added to a network.
  explicit FunctionLayer(const F& function = {}) : function_(function) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object,
                                           const DataShape& /*data*/) requires requires {
    F::read(object);
  }
  { return std::make_shared<const FunctionLayer>(F::read(object)); }
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const requires requires(const F& function) {
    function.write(object);
  }
  { function_.write(object); }

  const F& function() const { return function_; }  ///< with its options
  std::string kind() const override { return F::kKind; }
  Shape build(BuildContext& context) const override {
    if constexpr (requires { function_.check(context); }) function_.check(context);
    return context.input();
  }
  bool gradient_reads_input() const override {
    return requires { F::kGradientReadsInput; };
  }

 private:
  F function_;
};

}  // namespace lockstep::inline v0::model
