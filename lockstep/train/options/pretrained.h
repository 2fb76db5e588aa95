// Initial weights from another training, with the names of torchvision or Lockstep.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/fields/fields.h"
#include "lockstep/base/log.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::checkpoint {
struct ReplicaArrays;
}

namespace lockstep::inline v0::strategy {
class LocalReplicas;
}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0::train {

/// Renames tensors of a file of weights. A * in both names matches the same text: "backbone.*" and
/// "*" remove a prefix.
struct NameMap {
  std::string from;  ///< name in the file, without a wrapper's prefix
  std::string to;    ///< name in the network, in the naming scheme of the file

  /// Parses "OLD=NEW". Throws Error (input) as check() does.
  static NameMap parse(std::string_view text);
  void check() const;  ///< throws Error (input) for an empty name, or if only one name has a *
};
inline std::string to_string(const NameMap& rule) {
  return rule.from + "=" + rule.to;
}  ///< as parse() reads it
/// Throws Error (input) as NameMap::parse().
inline void parse_field(NameMap& rule, std::string_view /*name*/, std::string_view text) {
  rule = NameMap::parse(text);
}

/// The source of initial weights.
struct Pretrained {
  /// A safetensors file, the index of several (FILE.safetensors.index.json), an ONNX file
  /// (FILE.onnx), a checkpoint, or a directory of checkpoints, whose newest undamaged one is used;
  /// DIR:best is the best one (CheckpointPlan::keep_best). A folder of a model hub has
  /// model.safetensors or its index.
  std::filesystem::path path = {};
  /// Skips the head, the last layer with parameters, so that the number of classes may differ.
  bool reset_head = false;
  /// Loads the tensors that fit, at least one; the other tensors of the network keep their values.
  bool partial = false;
  /// Renames tensors of the file. The first rule that matches a tensor applies; each must match
  /// one.
  std::vector<NameMap> map = {};
};

/// Whether a path, by its name, is that of a file of weights, not of checkpoints or of a folder.
inline bool is_weights_file(const std::filesystem::path& path) {
  const std::filesystem::path extension = path.extension();
  return extension == ".onnx" || extension == ".safetensors" || extension == ".json";
}

/// The weights that were loaded.
struct PretrainedWeights {
  std::filesystem::path file;      ///< the file, the index, or that of a checkpoint
  std::string uninitialized_head;  ///< layer that keeps its initial values; empty: none
  /// Lines of a table after a partial load: tensors that were loaded, missing in the file, unused
  /// in the file, or of a different shape or type. The chief logs it.
  std::vector<std::string> table = {};
};

/// Loads the parameters and buffers `arrays` of `network`. The file has either Lockstep's names
/// ("conv1/kernel"), as checkpoints do, or PyTorch's names as in torchvision's networks:
/// "conv1.weight" [O, I, H, W] for "conv1/kernel" [O, H, W, I], "fc.weight" for "fc/kernel", and
/// "weight", "bias", "running_mean", "running_var" for gamma, beta, moving_mean, moving_variance,
/// and "weight" for embeddings, as in Hugging Face's BERT; "num_batches_tracked", "position_ids"
/// and the masks of attention are ignored. A timm ViT has "pos_embed" [1, T, D] for the layer of
/// that name, and "cls_token", which is added to its first row (torch_weights()). In a file of
/// Hugging Face's GPT-2 kernels are [inputs, outputs]. If the file has more text positions than the
/// network, the first ones are read. A
/// common prefix "module." or "_orig_mod." is removed. float16, bfloat16 and float64 become
/// float32. The kernels of dense layers that read a flattened image are reordered, because PyTorch
/// flattens channels first; PyTorch's names are rejected if other layers than dense, dropout, relu
/// and PointwiseLayer read one. An ONNX file is imported (onnx/import.h); two biases of a recurrent
/// layer are added if the network has one. Its weights match by layer name, or all of them by order
/// and shape. `log` receives warnings about damaged checkpoints that were skipped, and about
/// weights that the network does not have. Throws one Error (checkpoint) `[init-from] expected …,
/// got …` that lists up to ten tensors that are missing, unused, or of a different shape or type,
/// unless the load is partial; or for two tensors with the same name after `map`, or a value that
/// is not finite. On any error `arrays` are unchanged.
PretrainedWeights read_pretrained(const Pretrained& from, const model::Network& network,
                                  const checkpoint::ReplicaArrays& arrays, Logger& log);

/// Initializes all replicas of the job: the chief reads the file and broadcasts. Throws the same
/// Error (checkpoint) on all ranks. Collective.
PretrainedWeights initialize_from(strategy::LocalReplicas& replicas, const Pretrained& from);

}  // namespace lockstep::inline v0::train

namespace lockstep::inline v0 {

/// The options of initial weights.
template <>
struct Fields<train::Pretrained> {
  using Options = train::Pretrained;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::path,
            {"init_from", "Model",
             "Initial weights: a safetensors file with the names of torchvision or "
             "Lockstep, the index of several, a folder of a model hub, a FILE.onnx, a "
             "checkpoint, a directory of checkpoints, or DIR:best. Ignored when the run "
             "resumes from a checkpoint"},
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

}  // namespace lockstep::inline v0
