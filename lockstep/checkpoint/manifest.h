// The manifest of a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/files.h"

namespace lockstep::inline v0::checkpoint {

/// Written last: a directory without it is not a complete checkpoint.
inline constexpr const char* kManifestName = "MANIFEST.json";
inline constexpr const char* kModelFile = "model.safetensors";          ///< parameters and buffers
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";  ///< slots
inline constexpr const char* kStateFile = "state.json";                 ///< TrainingState
/// TrainingState::tokenizer, in checkpoints that have one.
inline constexpr const char* kTokenizerFile = "tokenizer";
/// TrainingState::script, in checkpoints of a training of a TorchScript file.
inline constexpr const char* kScriptFile = "script.pt";

/// Marks a checkpoint as the best of its training when it was saved.
struct BestMark {
  std::string metric;  ///< such as "validation_loss"
  double value = 0;    ///< finite

  bool operator==(const BestMark&) const = default;
};

/// The contents of MANIFEST.json.
struct Manifest {
  std::int64_t step = 0;   ///< updates done
  std::int64_t epoch = 0;  ///< epochs completed
  /// Number of the save within a checkpoint directory. The newest checkpoint has the largest, even
  /// if a new run started again at a smaller step.
  std::uint64_t sequence = 0;
  std::vector<FileDigest> files;  ///< all files except the manifest
  /// False if steps were being skipped when it was saved, or if no later step was good: training
  /// may have diverged.
  bool healthy = true;
  std::optional<BestMark> best = {};  ///< set if it was the best checkpoint so far

  std::uint64_t total_bytes() const;  ///< total size of `files`
};

/// The directory name of a checkpoint: "step-00001000".
std::string checkpoint_name(std::int64_t step);

/// Writes the manifest into `directory` and syncs both. Throws Error (checkpoint).
void write_manifest(const std::filesystem::path& directory, const Manifest& manifest);

/// Throws Error (checkpoint) if the manifest is missing or malformed, does not list the model,
/// the optimizer and the state, or has a different format version.
Manifest read_manifest(const std::filesystem::path& directory);

/// Quick check: every file exists and has the right size. Throws Error (checkpoint) naming the
/// first that does not.
void check_sizes(const std::filesystem::path& directory, const Manifest& manifest);

/// Full check: sizes and checksums. Throws Error (checkpoint) naming the first file that differs.
void check_contents(const std::filesystem::path& directory, const Manifest& manifest);

}  // namespace lockstep::inline v0::checkpoint
