// A check of the backward pass of layers and losses, such as a user's own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/model/layer/layer.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::model {

/// Options of check_gradients().
struct GradientCheck {
  std::int64_t samples = 3;  ///< size of the batch
  std::uint64_t seed = 1;    ///< seed of inputs, targets and parameters
  /// A central difference is that of the losses at a value plus and minus this. If it does not
  /// match, an eighth and a 64th of it are tried: a kink of the function, as of ReLU, may lie
  /// between.
  float step = 4e-3F;
  /// Largest deviation, relative to the largest gradient of the array, or to `floor` times that of
  /// all arrays if that is larger.
  double tolerance = 1e-2;
  double floor = 0.05;         ///< see `tolerance`
  std::int64_t elements = 40;  ///< number of elements of each array that are compared
};

/// Compares the gradients that the backward pass of `network` writes with central differences of
/// the loss, the mean squared error of its first output and random targets. Computes in training on
/// the CPU, in float32, with random inputs, and with the initial values of the parameters plus
/// random numbers. Throws Error (input) that names the first element of a trained parameter whose
/// gradient differs.
void check_gradients(const Network& network, const GradientCheck& check = {});

/// Checks one layer, whose inputs have these shapes, without the batch, and also the gradients of
/// its float32 inputs. A unit test of a CustomLayer:
///
///     check_gradients(ScaleAndShift(), {{8}});
void check_gradients(const Layer& layer, const std::vector<Shape>& inputs,
                     const GradientCheck& check = {});

/// Compares the gradients of `loss` for samples of `width` random outputs and targets that fit its
/// activation: labels for "softmax", zeros and ones for "sigmoid", numbers otherwise. Throws Error
/// (input) that names the first output whose gradient differs.
void check_gradients(const Loss& loss, std::int64_t width, const GradientCheck& check = {});
/// Overload for given outputs [samples, width] and targets.
void check_gradients(const Loss& loss, std::span<const float> outputs, const Targets& targets,
                     const GradientCheck& check = {});

}  // namespace lockstep::inline v0::model
