// What a run was started with, as the program that started it understands it: one JSON object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/checkpoint/files.h"

namespace lockstep::checkpoint {

/// A JSON object as a value, empty at first. Who looks inside includes <nlohmann/json.hpp>, which takes a compiler
/// longer than most of what includes this.
class Configuration {
 public:
  Configuration();
  /// Takes a copy.
  Configuration(const nlohmann::json& object);           // NOLINT(google-explicit-constructor): it is that object
  Configuration(const Configuration& other);             ///< copies the object, not the place
  Configuration& operator=(const Configuration& other);  ///< Likewise.
  ~Configuration();

  nlohmann::json& operator*() { return *object_; }                    ///< the object
  const nlohmann::json& operator*() const { return *object_; }        ///< the object
  nlohmann::json* operator->() { return object_.get(); }              ///< the object's members
  const nlohmann::json* operator->() const { return object_.get(); }  ///< the object's members

 private:
  std::unique_ptr<nlohmann::json> object_;
};

// MANIFEST.json: what makes a directory of files one checkpoint. It is written last, so a directory without it is no
// checkpoint.

/// The file that makes a directory a complete checkpoint.
inline constexpr const char* kManifestName = "MANIFEST.json";
inline constexpr const char* kModelFile = "model.safetensors";          ///< parameters and buffers
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";  ///< slots
inline constexpr const char* kStateFile = "state.json";                 ///< where training stands

/// What a complete checkpoint consists of.
struct Manifest {
  std::int64_t step = 0;   ///< updates done
  std::int64_t epoch = 0;  ///< epochs completed
  /// Counts the saves into a checkpoint directory: the newest checkpoint is the one with the largest, also where a new
  /// run began again at a smaller step.
  std::uint64_t sequence = 0;
  std::vector<FileDigest> files;  ///< every file but the manifest
  /// False where steps were being skipped when it was saved, or no later step was good: it may be a diverged training.
  /// True for manifests of version 0.1, which lack it.
  bool healthy = true;

  std::uint64_t total_bytes() const;  ///< of all files
};

/// The name of its directory: "step-00001000".
std::string checkpoint_name(std::int64_t step);

/// Writes the manifest into `directory` and syncs both. Throws Error (checkpoint).
void write_manifest(const std::filesystem::path& directory, const Manifest& manifest);

/// Throws Error (checkpoint) where it is missing, is no manifest, does not name the three files above, or is of a later
/// version than this program knows.
Manifest read_manifest(const std::filesystem::path& directory);

/// Quick: every file is there and has its size. Throws Error (checkpoint) naming the first that is not.
void check_sizes(const std::filesystem::path& directory, const Manifest& manifest);

/// Reads everything: sizes and checksums. Throws Error (checkpoint) naming the first file that differs.
void check_contents(const std::filesystem::path& directory, const Manifest& manifest);

}  // namespace lockstep::checkpoint
