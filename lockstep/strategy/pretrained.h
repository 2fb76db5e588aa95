// Weights of another training as initial values, under torchvision's names or our own.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/model/network.h"

namespace lockstep::strategy {

class LocalReplicas;

/// Where initial values come from.
struct Pretrained {
  /// A safetensors file, a checkpoint, or a directory of checkpoints, whose newest undamaged one is taken.
  std::filesystem::path path = {};
  /// Leaves the head, the last layer with parameters, as it was initialised: so another number of classes fits.
  bool reset_head = false;
};

/// What was taken.
struct PretrainedWeights {
  std::filesystem::path file;  ///< of safetensors, or a checkpoint's directory
  std::string kept_head;       ///< the layer that keeps its initial values; empty where none does
};

/// Fills the parameters and buffers of `arrays`, which are those of `network`. The file has either our names
/// ("conv1/kernel"), as checkpoints do, or PyTorch's as torchvision's residual networks have them: "conv1.weight" [O,
/// I, H, W] for "conv1/kernel" [O, H, W, I], "fc.weight" for "fc/kernel", and "weight", "bias", "running_mean",
/// "running_var" for gamma, beta, moving_mean, moving_variance; "num_batches_tracked" is passed over. float16 and
/// bfloat16 become float32. PyTorch's names are refused for a network that flattens an image of several channels, whose
/// values PyTorch orders otherwise. `log` is told of damaged checkpoints that were skipped. Throws one Error
/// (checkpoint) `[init-from] needed; got` that names everything missing, left over, of another shape or of another
/// type; then, and where the file fails, `arrays` are as before.
PretrainedWeights read_pretrained(const Pretrained& from, const model::Network& network,
                                  const checkpoint::ReplicaArrays& arrays, Logger& log);

/// The same for all replicas of the job: the chief reads, the others receive. Throws the same Error (checkpoint) on all
/// ranks. Collective.
PretrainedWeights initialize_from(LocalReplicas& replicas, const Pretrained& from);

}  // namespace lockstep::strategy
