// What one checkpoint holds, and its way into the files of one directory and back. Which directories there are is
// checkpoint_directory.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/model/parameters.h"

namespace lockstep::checkpoint {

/// Where training stands. The step says where in the data to go on: order and randomness are functions of it.
struct TrainingState {
  std::int64_t step = 0;              ///< updates done
  std::int64_t epoch = 0;             ///< epochs completed
  std::uint64_t seed = 1;             ///< of the run
  std::int64_t global_batch = 0;      ///< samples
  std::string precision = "float32";  ///< of the computation, as `--precision` knows it
  double loss_scale = 1;              ///< what the next loss is multiplied by
  std::map<std::string, double>
      metrics;  ///< exact: written so that the same double is read back; what is not finite comes back as NaN
  Configuration configuration;  ///< the run's options, as the program understands them
};

/// One optimizer slot ("momentum", "m", "v"): a flat array in the layout of the parameters.
struct Slot {
  std::string name;         ///< as the optimizer calls it
  std::span<float> values;  ///< flat
};

/// The arrays of one replica, in the owner's memory: read by save, written by restore.
struct ReplicaArrays {
  const model::ParameterTable* parameter_table = nullptr;  ///< names and places in `parameters`
  std::span<float> parameters;                             ///< flat
  const model::ParameterTable* buffer_table = nullptr;     ///< null where there are none
  std::span<float> buffers;                                ///< flat
  std::vector<Slot> slots;                                 ///< empty to restore a model alone, for evaluation
};

/// Bytes that a checkpoint of `arrays` takes on the disk, rounded up.
std::uint64_t checkpoint_bytes(const ReplicaArrays& arrays);

/// The tensors of model.safetensors: parameters and buffers under their names.
std::vector<TensorView> model_tensors(const ReplicaArrays& arrays);
/// The tensors of optimizer.safetensors: "SLOT/PARAMETER".
std::vector<TensorView> optimizer_tensors(const ReplicaArrays& arrays);

/// Writes model.safetensors, optimizer.safetensors and state.json into an existing directory, not the manifest; with
/// Destination::nowhere it only says what they would be. Throws Error (checkpoint).
std::vector<FileDigest> write_checkpoint_files(const std::filesystem::path& directory, const ReplicaArrays& arrays,
                                               const TrainingState& state,
                                               Destination destination = Destination::synced);

/// Throws Error (checkpoint) unless the checkpoint in `directory` is of this model and, where slots are given, of this
/// optimizer: names the first parameter (in the order of names) that differs, what the model has and what the
/// checkpoint has.
void check_checkpoint_fits(const std::filesystem::path& directory, const ReplicaArrays& arrays);

/// Reads a checkpoint whose contents were verified (check_contents) and fit. Throws Error (checkpoint).
TrainingState read_checkpoint_files(const std::filesystem::path& directory, const ReplicaArrays& arrays);

/// The text of state.json. Strings of the configuration that are not UTF-8, such as paths, are written by
/// encode_bytes().
std::string to_json_text(const TrainingState& state);
/// `where` is for the message of Error (checkpoint).
TrainingState parse_training_state(const std::string& text, const std::string& where);

}  // namespace lockstep::checkpoint
