// The contents of one checkpoint, and reading and writing them as the files of one directory. See
// directory.h for the checkpoints of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/training_state.h"
#include "lockstep/model/tensor/parameters.h"

namespace lockstep::inline v0::checkpoint {

/// One optimizer slot ("momentum", "m", "v"): a flat array in the layout of the trained parameters.
struct Slot {
  std::string name;         ///< name in the optimizer
  std::span<float> values;  ///< flat
};

/// Views of the arrays of one replica: read by save, written by restore.
struct ReplicaArrays {
  const model::ParameterTable* parameter_table = nullptr;  ///< names and offsets in `parameters`
  std::span<float> parameters;                             ///< flat
  const model::ParameterTable* buffer_table = nullptr;     ///< null if there are none
  std::span<float> buffers;                                ///< flat
  std::vector<Slot> slots;  ///< empty to restore only the model, for evaluation
  /// Names and offsets of the trained parameters in slots; null: parameter_table
  const model::ParameterTable* slot_table = nullptr;
};

/// Upper bound of the disk space of a checkpoint of `arrays`, in bytes.
std::uint64_t checkpoint_bytes(const ReplicaArrays& arrays, const TrainingState& state = {});

/// The tensors of model.safetensors: parameters and buffers by name.
std::vector<TensorView> model_tensors(const ReplicaArrays& arrays);
/// The tensors of optimizer.safetensors: "SLOT/PARAMETER".
std::vector<TensorView> optimizer_tensors(const ReplicaArrays& arrays);

/// Writes model.safetensors, optimizer.safetensors, state.json and the optional tokenizer and
/// TorchScript file, but not the manifest, into an existing directory. With Destination::nowhere,
/// only computes their digests. With a TorchScript file, removes the write permissions of group and
/// others from the directory, so that read_script() accepts it. Throws Error (checkpoint).
std::vector<FileDigest> write_checkpoint_files(const std::filesystem::path& directory,
                                               const ReplicaArrays& arrays,
                                               const TrainingState& state,
                                               Destination destination = Destination::synced);

/// Throws Error (checkpoint) unless the checkpoint in `directory` matches the model and, if there
/// are slots, the optimizer. The error shows the first parameter (by name) that differs, in the
/// model and in the checkpoint.
void check_checkpoint_fits(const std::filesystem::path& directory, const ReplicaArrays& arrays);

/// Reads a checkpoint that passed check_contents() and check_checkpoint_fits(). Without slots (for
/// evaluation), reads the moving averages of parameters if the checkpoint has them.
/// Throws Error (checkpoint).
TrainingState read_checkpoint_files(const std::filesystem::path& directory,
                                    const ReplicaArrays& arrays);

/// The TorchScript file (kScriptFile) of the checkpoint in `directory`: a program, which must not
/// run only because data refers to it. Throws Error (checkpoint) if there is none and, unless
/// `is_trusted`, if another user owns or may write the file or the directory. Checks and reads the
/// same open file, even if names change meanwhile.
std::string read_script(const std::filesystem::path& directory, bool is_trusted);

}  // namespace lockstep::inline v0::checkpoint
