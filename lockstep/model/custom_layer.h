// A layer of the user's own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/model/layer.h"

namespace lockstep::model {

/// The operands as a custom layer sees them: in host memory, all float32.
struct Tensors {
  std::vector<std::span<const float>> inputs;         ///< read only
  std::span<float> output;                            ///< to be written by forward
  std::span<float> output_gradient;                   ///< of backward; may be overwritten
  std::vector<std::span<float>> input_gradients;      ///< to be written by backward; empty where nobody needs it
  std::vector<std::span<float>> parameters;           ///< read only, in the order of declaration
  std::vector<std::span<float>> parameter_gradients;  ///< to be written by backward
  std::vector<std::span<float>> buffers;              ///< read and, in training, updated
  std::span<std::byte> saved;                         ///< kept from forward to backward; Needs::saved_bytes of them
  std::span<std::byte> scratch;                       ///< free to use during one call; Needs::scratch_bytes of them
};

/// A user's own layer: build, forward, backward. It runs on the CPU; a plan of another device refuses it.
class CustomLayer : public Layer {
 public:
  /// What it asks of the plan; asked once for each batch size.
  virtual Needs needs(const CompileContext& /*context*/) const { return {}; }
  /// Writes `output` from `inputs`, and what backward needs into `saved`.
  virtual void forward(const Tensors& tensors, const PassContext& pass) const = 0;
  /// Writes `input_gradients` (those that are not empty) and `parameter_gradients` from `output_gradient`.
  virtual void backward(const Tensors& tensors, const PassContext& pass) const = 0;

  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const final;
};

}  // namespace lockstep::model
