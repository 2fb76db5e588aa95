// Base class of user-defined layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/model/layer/layer.h"

namespace lockstep::inline v0::model {

/// The operands of a custom layer, all float32 in host memory.
struct Tensors {
  std::vector<std::span<const float>> inputs;         ///< read only
  std::span<const std::int32_t> indices;              ///< as Operands::indices
  std::span<float> output;                            ///< written by forward
  std::span<float> output_gradient;                   ///< for backward; may be overwritten
  std::vector<std::span<float>> input_gradients;      ///< written by backward; empty if not needed
  std::vector<std::span<float>> parameters;           ///< read only, in declaration order
  std::vector<std::span<float>> parameter_gradients;  ///< written by backward
  std::vector<std::span<float>> buffers;              ///< read and, in training, updated
  std::span<std::byte> saved;    ///< kept from forward to backward, Needs::saved_bytes bytes
  std::span<std::byte> scratch;  ///< workspace during one call, Needs::scratch_bytes bytes
};

/// A user-defined layer: build, forward, backward. It runs on the CPU only; compile() throws on
/// other devices.
class CustomLayer : public Layer {
 public:
  /// The memory it needs from the plan; called once per batch size.
  virtual Needs needs(const CompileContext& /*context*/) const { return {}; }
  /// Writes `output` from `inputs`, and what backward needs to `saved`. With
  /// PassContext::recomputing it writes the same values again and leaves `buffers` as they are.
  virtual void forward(const Tensors& tensors, const PassContext& pass) const = 0;
  /// Writes `input_gradients` (those that are not empty) and `parameter_gradients` from
  /// `output_gradient`.
  virtual void backward(const Tensors& tensors, const PassContext& pass) const = 0;

  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const final;
};

}  // namespace lockstep::inline v0::model
