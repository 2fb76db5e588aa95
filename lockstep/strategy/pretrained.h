// Initial weights from another training, with the names of torchvision or Lockstep.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/base/log.h"
#include "lockstep/model/network.h"

namespace lockstep::checkpoint {
struct ReplicaArrays;
}

namespace lockstep::strategy {

class LocalReplicas;

/// The source of initial weights.
struct Pretrained {
  /// A safetensors file, a checkpoint, or a directory of checkpoints, of which the newest undamaged
  /// one is used; DIR:best is the best one (CheckpointPlan::keep_best).
  std::filesystem::path path = {};
  /// Does not load the head, the last layer with parameters, so that the number of classes may
  /// differ.
  bool reset_head = false;
};

/// The weights that were loaded.
struct PretrainedWeights {
  std::filesystem::path file;  ///< a safetensors file, or a checkpoint's directory
  std::string kept_head;       ///< the layer that keeps its initial values; empty for none
};

/// Loads the parameters and buffers `arrays` of `network`. The file has either Lockstep's names
/// ("conv1/kernel"), as checkpoints do, or PyTorch's names as in torchvision's networks:
/// "conv1.weight" [O, I, H, W] for "conv1/kernel" [O, H, W, I], "fc.weight" for "fc/kernel", and
/// "weight", "bias", "running_mean", "running_var" for gamma, beta, moving_mean, moving_variance;
/// "num_batches_tracked" is ignored. A prefix "module." or "_orig_mod." of all names
/// is left out. float16, bfloat16 and float64 become float32. The kernels
/// of dense layers that read a flattened image are reordered, because PyTorch flattens channels
/// first; PyTorch's names are refused if other layers than dense, dropout, relu and PointwiseLayer
/// read one. `log` is told of damaged checkpoints that were skipped. Throws one Error (checkpoint)
/// `[init-from] expected …, got …` that names what is missing, left over, of another shape or of
/// another type, up to ten tensors; or a tensor with a value that is not finite; then, and where
/// the file fails, `arrays` are as before.
PretrainedWeights read_pretrained(const Pretrained& from, const model::Network& network,
                                  const checkpoint::ReplicaArrays& arrays, Logger& log);

/// Initializes all replicas of the job: the chief reads the file and broadcasts. Throws the same
/// Error (checkpoint) on all ranks. Collective.
PretrainedWeights initialize_from(LocalReplicas& replicas, const Pretrained& from);

}  // namespace lockstep::strategy
