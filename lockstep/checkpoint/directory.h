// The checkpoints of a run:
//
//   DIR/step-00001000/model.safetensors  optimizer.safetensors  state.json  MANIFEST.json
//
// A directory under such a name is always complete: it is written under a hidden name, with the manifest last, synced,
// then renamed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {

class DirectoryLock;

/// What the ranks that do not write the checkpoint do to show that their replicas are the chief's:
/// `--verify-checkpoint auto|full|hash|none`.
enum class VerifyCheckpoint {
  automatic,  ///< full up to kMaxFullBytes a rank where the nodes have room, else hash
  full,  ///< each writes its own to a temporary directory of its node, which is compared with the chief's and removed
  hash,  ///< each hashes what it would write; no file is made
  none,  ///< nothing is compared
};
/// Throws Error (input) that lists the names.
VerifyCheckpoint parse_verify_checkpoint(std::string_view name);

/// The largest checkpoint that `automatic` verifies in full, in bytes.
inline constexpr std::uint64_t kMaxFullBytes = 256'000'000;

/// Where checkpoints lie, and how many.
struct CheckpointOptions {
  std::filesystem::path directory;  ///< made where it is missing
  int keep = 3;                     ///< healthy checkpoints to keep; at least 1
  /// How long prepare() waits for another run to leave the directory: one that was just killed may still be going.
  std::chrono::milliseconds lock_patience{10'000};
  VerifyCheckpoint verify = VerifyCheckpoint::automatic;  ///< how replicas are compared at each save
};

/// What a checkpoint is saved as.
struct SaveOptions {
  bool healthy = true;  ///< false: steps are being skipped, so retention does not count it and restore() avoids it
  bool prune = true;    ///< false: older checkpoints stay until the caller calls prune()
};

/// A checkpoint that could not be written, on any rank: a full disk, a quota, a failing one. What was saved before is
/// untouched, the next save may succeed.
class SaveError : public Error {
 public:
  explicit SaveError(const Error& reason) : Error(reason) {}  ///< the same category and text
};

/// `--resume auto|never|require`; "must" is an older name of "require".
enum class Resume { automatic, never, must };
/// Throws Error (input) that lists the names.
Resume parse_resume(std::string_view name);

/// What was read.
struct RestoredCheckpoint {
  std::filesystem::path path;  ///< of the checkpoint's own directory
  TrainingState state;         ///< where training stood
};

/// What stands under a name of a checkpoint.
struct CheckpointInfo {
  std::filesystem::path path;  ///< of the checkpoint's own directory
  std::int64_t step = 0;       ///< updates done
  std::int64_t epoch = 0;      ///< epochs completed
  std::uint64_t sequence = 0;  ///< grows with each checkpoint saved here: the newest has the largest
  std::uint64_t bytes = 0;     ///< of its files
  std::string damage;  ///< why it is not complete (manifest, missing files, sizes; checksums are not read); empty where
                       ///< it is complete

  bool healthy = true;  ///< Manifest::healthy

  bool complete() const { return damage.empty(); }  ///< whether it can be used
};

/// Whether `path` is one checkpoint, sound or not, rather than a directory of them: it has a manifest, or a
/// checkpoint's name.
bool is_checkpoint(const std::filesystem::path& path);

/// Everything in `directory` that has a checkpoint's name, newest first; what has no readable manifest comes before all
/// others, by step. `directory` alone where it is one checkpoint. Empty where there is no such directory. Throws Error
/// (checkpoint) where it cannot be read.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& directory);

/// Saves and restores the checkpoints of a run. Every process of the job has one, and calls prepare, save and restore
/// at the same step: `ranks` has one member per process (any replica of a process may speak for it), of which rank 0 is
/// the chief. The other ranks need not see the directory. A failure on any rank is an Error (checkpoint) on all, and no
/// earlier checkpoint is touched by it.
class CheckpointDirectory {
 public:
  /// Of the ranks of `ranks`, one of which writes. Collective.
  CheckpointDirectory(CheckpointOptions options, allreduce::Communicator ranks,
                      std::shared_ptr<Logger> log = make_silent_logger());
  CheckpointDirectory(CheckpointDirectory&&) noexcept;
  CheckpointDirectory& operator=(CheckpointDirectory&&) noexcept;
  ~CheckpointDirectory();

  /// Before training: makes the directory, keeps other runs out of it for the life of this object, brings back what a
  /// crash of an earlier run left complete and removes the rest, and makes sure that it can be written and has room for
  /// a checkpoint of `bytes` (checkpoint_bytes). Warns where the file system has no locks. Collective.
  void prepare(std::uint64_t bytes);

  /// Saves `state.step`'s checkpoint and, unless the options defer it, calls prune(). Collective. The chief writes to
  /// the directory; the other ranks show that they hold the same, as verification() says: replicas must be identical,
  /// and the error names rank, file and tensor where they are not. A checkpoint of the same step is replaced. Where the
  /// disk is full, a healthy one makes room: older checkpoints are removed, down to the newest healthy one that
  /// verifies, and writing is tried again. With `keep` 1 the new checkpoint is read back before the older one is
  /// removed. Throws SaveError where it cannot be written.
  std::filesystem::path save(const ReplicaArrays& arrays, const TrainingState& state, const SaveOptions& options = {});

  /// Removes all but the newest `keep` healthy checkpoints. One that is not healthy stays only while it is the newest
  /// of all; then one more healthy one stays too. The chief does it; what fails is a warning.
  void prune() const;

  /// Marks a checkpoint of this directory as not healthy: no step after it was good. Collective; on the chief, where a
  /// failure is a warning.
  void mark_unhealthy(const std::filesystem::path& checkpoint);

  /// Reads the newest checkpoint that is complete and undamaged, or the one that the directory itself is, into the
  /// arrays of every rank (the chief reads, the others receive), and warns of those it skipped and why. A checkpoint
  /// that is not healthy is read only where there is no healthy one. nullopt where
  /// there is none, or where `resume` is `never`; with `must` that is an Error. A checkpoint of another model or
  /// optimizer is an Error, not skipped, and so is a newer one that other ranks have under this path and the chief has
  /// not. Collective; needs no prepare().
  std::optional<RestoredCheckpoint> restore(const ReplicaArrays& arrays, Resume resume = Resume::automatic);

  /// How replicas are compared: the choice of prepare() where the options leave it to `automatic`. Same on all ranks.
  VerifyCheckpoint verification() const { return options_.verify; }

  /// What the last restore() skipped and why, newest first; the same on every rank.
  const std::vector<std::string>& skipped() const { return skipped_; }

  const CheckpointOptions& options() const { return options_; }  ///< as it was made

 private:
  bool is_chief() const { return ranks_.rank() == 0; }
  void prepare_chief();
  void choose_verification(std::uint64_t bytes);
  std::vector<FileDigest> write_files(std::optional<TemporaryDirectory>& temporary, const ReplicaArrays& arrays,
                                      const TrainingState& state, bool healthy) const;
  std::vector<FileDigest> write_on_chief(std::optional<TemporaryDirectory>& temporary, const ReplicaArrays& arrays,
                                         const TrainingState& state, bool healthy) const;
  void commit(const std::filesystem::path& temporary, const std::filesystem::path& path, const TrainingState& state,
              std::vector<FileDigest> files, bool healthy) const;
  bool make_room(std::uint64_t bytes) const;
  void remove_checkpoint(const CheckpointInfo& info) const;
  void check_chief_sees_newest() const;
  /// What the other ranks need to know of it, as text.
  std::string restore_on_chief(const ReplicaArrays& arrays, Resume resume);
  std::optional<RestoredCheckpoint> restore_newest(const ReplicaArrays& arrays);

  CheckpointOptions options_;
  allreduce::Communicator ranks_;
  std::shared_ptr<Logger> log_;
  std::unique_ptr<DirectoryLock> lock_;
  std::filesystem::path workspace_;  ///< of this node, for the temporary directories of a rank that is not the chief
  bool prepared_ = false;
  std::vector<std::string> skipped_;
};

}  // namespace lockstep::checkpoint
