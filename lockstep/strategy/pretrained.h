// Initial weights from another training, with the names of torchvision or Lockstep.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/base/log.h"
#include "lockstep/model/network.h"

namespace lockstep::checkpoint {
struct ReplicaArrays;
}

namespace lockstep::strategy {

class LocalReplicas;

/// Another name for tensors of a file of weights. A * in both stands for the same text:
/// "backbone.*" and "*" leave out a prefix.
struct NameMap {
  std::string from;  ///< in the file, without a wrapper's prefix
  std::string to;    ///< in the network, spelled as the file spells its names

  /// Reads "OLD=NEW". Throws Error (input) as check() does.
  static NameMap parse(std::string_view text);
  void check()
      const;  ///< throws Error (input) for an empty name, or unless * is in both or neither
};
inline std::string to_string(const NameMap& rule) {
  return rule.from + "=" + rule.to;
}  ///< as read
/// Throws Error (input) as NameMap::parse().
inline void parse_field(NameMap& rule, std::string_view /*name*/, std::string_view text) {
  rule = NameMap::parse(text);
}

/// The source of initial weights.
struct Pretrained {
  /// A safetensors file, a file of ONNX (FILE.onnx), a checkpoint, or a directory of checkpoints,
  /// of which the newest undamaged one is used; DIR:best is the best one
  /// (CheckpointPlan::keep_best).
  std::filesystem::path path = {};
  /// Does not load the head, the last layer with parameters, so that the number of classes may
  /// differ.
  bool reset_head = false;
  /// Loads the tensors that fit, at least one, and leaves the others of the network as they are.
  bool partial = false;
  /// Renames tensors of the file; the first that matches a tensor counts, and each must match one.
  std::vector<NameMap> map = {};
};

/// The weights that were loaded.
struct PretrainedWeights {
  std::filesystem::path file;  ///< a safetensors file, or a checkpoint's directory
  std::string uninitialized_head;       ///< the layer that keeps its initial values; empty for none
  /// Of a partial load, the lines of a table: the tensors that were taken, are missing in the file,
  /// unused in the file, and of another shape or type. The chief logs it.
  std::vector<std::string> table = {};
};

/// Loads the parameters and buffers `arrays` of `network`. The file has either Lockstep's names
/// ("conv1/kernel"), as checkpoints do, or PyTorch's names as in torchvision's networks:
/// "conv1.weight" [O, I, H, W] for "conv1/kernel" [O, H, W, I], "fc.weight" for "fc/kernel", and
/// "weight", "bias", "running_mean", "running_var" for gamma, beta, moving_mean, moving_variance,
/// and "weight" for embeddings, as in Hugging Face's BERT; "num_batches_tracked", "position_ids"
/// and the masks of attention are ignored. In a file of Hugging Face's GPT-2 kernels are [inputs,
/// outputs]. Of more positions of a text than the network has, the first are read. A prefix
/// "module." or "_orig_mod." of all names is left out. float16, bfloat16 and float64 become
/// float32. The kernels of dense layers that read a flattened image are reordered, because PyTorch
/// flattens channels first; PyTorch's names are refused if other layers than dense, dropout, relu
/// and PointwiseLayer read one. A file of ONNX is imported (onnx/import.h), with the sum of two
/// biases of a recurrent layer if the network has one: its weights match by the names of its
/// layers, or all of them by order and shape. `log` is warned of damaged checkpoints that were
/// skipped, and of weights that have no place in the network. Throws one Error (checkpoint)
/// `[init-from] expected …, got …` that names what is missing, left over, of another shape or of
/// another type, up to ten tensors, unless the load is partial; or two tensors with the same name
/// after `map`, or a tensor with a value that is not finite. Then, and where the file fails,
/// `arrays` are as before.
PretrainedWeights read_pretrained(const Pretrained& from, const model::Network& network,
                                  const checkpoint::ReplicaArrays& arrays, Logger& log);

/// Initializes all replicas of the job: the chief reads the file and broadcasts. Throws the same
/// Error (checkpoint) on all ranks. Collective.
PretrainedWeights initialize_from(LocalReplicas& replicas, const Pretrained& from);

}  // namespace lockstep::strategy

namespace lockstep {

/// The options of initial weights.
template <>
struct Fields<strategy::Pretrained> {
  using Options = strategy::Pretrained;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::path,
            {"init_from", "Model",
             "Initial weights: a safetensors file with the names of torchvision or "
             "Lockstep, a FILE.onnx, a checkpoint, a directory of checkpoints, or "
             "DIR:best. Ignored when the run resumes from a checkpoint"},
            {},
            {.value = "PATH"}},
      Field{&Options::reset_head,
            {"reset_head", "Model",
             "With --init-from or --model FILE.onnx, do not load the last layer that has "
             "parameters, so that the number of classes may differ"},
            {},
            {.needs = "init_from"}},
      Field{&Options::partial,
            {"partial", "Model",
             "With --init-from, load the tensors that fit and print a table of the others"},
            {},
            {.needs = "init_from"}},
      Field{&Options::map,
            {"map", "Model",
             "With --init-from, rename tensors: OLD is a name in the file, NEW that in the "
             "network, such as 'backbone.*=*', where * is any text. May be given several "
             "times; the first that matches counts (default: none)"},
            {},
            {.value = "OLD=NEW[,OLD=NEW...]", .needs = "init_from"}}};
};

}  // namespace lockstep
