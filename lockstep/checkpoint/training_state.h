// The state of a training in a checkpoint, except arrays (state.json), and how a run uses
// checkpoints. Includes little, because the options of a training include this header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "lockstep/base/enum_names.h"

namespace lockstep::inline v0::checkpoint {

/// The configuration of a run: a JSON object with value semantics, initially empty. Code that
/// accesses members includes <nlohmann/json.hpp>, which this header avoids for shorter compile
/// times.
class Configuration {
 public:
  Configuration();
  /// Copies `object`.
  Configuration(const nlohmann::json& object);  // NOLINT(google-explicit-constructor): wraps it
  Configuration(const Configuration& other);    ///< deep copy
  Configuration& operator=(const Configuration& other);  ///< deep copy
  ~Configuration();

  nlohmann::json& operator*() { return *object_; }                    ///< the object
  const nlohmann::json& operator*() const { return *object_; }        ///< the object
  nlohmann::json* operator->() { return object_.get(); }              ///< the object's members
  const nlohmann::json* operator->() const { return object_.get(); }  ///< the object's members

 private:
  std::unique_ptr<nlohmann::json> object_;
};

/// The position of a training run. The data order and random numbers are functions of the step.
struct TrainingState {
  std::int64_t step = 0;              ///< updates done
  std::int64_t epoch = 0;             ///< epochs completed
  std::uint64_t seed = 1;             ///< seed of the run
  std::int64_t global_batch = 0;      ///< samples
  std::string precision = "float32";  ///< value of `--precision`
  double loss_scale = 1;              ///< factor for the next loss
  /// Written exactly; infinite values are read back as NaN.
  std::map<std::string, double> metrics;
  Configuration configuration;  ///< the options of the run
  /// The bytes of the tokenizer's file: a file of the checkpoint (kTokenizerFile), not part of
  /// state.json. Null if there is none, and on ranks other than the chief when they save.
  std::shared_ptr<const std::string> tokenizer = {};
  /// The bytes of the TorchScript file that was trained: a file of the checkpoint (kScriptFile),
  /// saved like the tokenizer. It is a program, so only read_script() reads it.
  std::shared_ptr<const std::string> script = {};
};

/// The text of state.json. Strings of the configuration that are not UTF-8, such as paths, are
/// encoded by encode_bytes().
std::string to_json_text(const TrainingState& state);
/// Parses state.json. Throws Error (checkpoint) with `where`.
TrainingState parse_training_state(const std::string& text, const std::string& where);

/// The result of CheckpointDirectory::restore().
struct RestoredCheckpoint {
  std::filesystem::path path;  ///< directory of the checkpoint
  TrainingState state;         ///< position of the training run
};

/// `--resume auto|never|require`.
enum class Resume { automatic, never, require };

/// How each save verifies that the replicas of the other ranks are identical to the chief's:
/// `--verify-checkpoint auto|full|hash|none`.
enum class VerifyCheckpoint {
  automatic,  ///< full up to kMaxFullBytes per rank if the nodes have the space, otherwise hash
  full,  ///< each rank writes a temporary directory on its node, compares it with the chief's, and
         ///< removes it
  hash,  ///< each rank hashes what it would write; no file is created
  none,  ///< nothing is compared
};

}  // namespace lockstep::inline v0::checkpoint

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<checkpoint::Resume> =
    enum_names<checkpoint::Resume>({{checkpoint::Resume::automatic, "auto"},
                                    {checkpoint::Resume::never, "never"},
                                    {checkpoint::Resume::require, "require"}});
template <>
inline constexpr auto kNamesOf<checkpoint::VerifyCheckpoint> =
    enum_names<checkpoint::VerifyCheckpoint>({{checkpoint::VerifyCheckpoint::automatic, "auto"},
                                              {checkpoint::VerifyCheckpoint::full, "full"},
                                              {checkpoint::VerifyCheckpoint::hash, "hash"},
                                              {checkpoint::VerifyCheckpoint::none, "none"}});

}  // namespace lockstep::inline v0
