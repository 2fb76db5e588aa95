// The checkpoints of a run:
//
//   DIR/step-00001000/model.safetensors  optimizer.safetensors  state.json  MANIFEST.json
//
// and the file "tokenizer" if the model was trained on text with a tokenizer from a file, and
// "script.pt" if the network is a TorchScript file.
//
// A directory with such a name is always complete: it is written under a hidden name, with the
// manifest last, synced, and then renamed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::inline v0::checkpoint {

class DirectoryLock;

/// Called on the chief with a checkpoint whose tensors differ from those of the run. May throw an
/// Error that explains the difference better than the default one, which names the first tensor.
using ExplainMismatch = std::function<void(const RestoredCheckpoint&)>;

/// The largest checkpoint that `automatic` verifies in full, in bytes.
inline constexpr std::uint64_t kMaxFullBytes = 256'000'000;

/// Where checkpoints are stored, and how many.
struct CheckpointOptions {
  std::filesystem::path directory;  ///< created if it does not exist
  int keep = 3;                     ///< number of healthy checkpoints to keep; at least 1
  /// How long prepare() waits for another run to release the directory: one that was just killed
  /// may still be running.
  std::chrono::milliseconds lock_patience{10'000};
  /// How replicas are compared at each save.
  VerifyCheckpoint verify = VerifyCheckpoint::automatic;
  /// After how long prepare() logs that it waits.
  std::chrono::milliseconds lock_silence{1'000};
};

/// Options of one save.
struct SaveOptions {
  bool healthy = true;  ///< false: steps are being skipped; retention does not count it and
                        ///< restore() avoids it
  bool prune = true;    ///< false: older checkpoints are kept until the caller calls prune()
  /// Set: this is the best checkpoint so far, which prune() keeps until a better one is saved.
  std::optional<BestMark> best = {};
};

/// A checkpoint could not be written on some rank: the disk or a quota is full, or the disk failed.
/// Earlier checkpoints are untouched, and the next save may succeed.
class SaveError : public Error {
 public:
  explicit SaveError(const Error& reason) : Error(reason) {}  ///< copies category and text
};

/// A directory entry with the name of a checkpoint.
struct CheckpointInfo {
  std::filesystem::path path;  ///< directory of this checkpoint
  std::int64_t step = 0;       ///< updates done
  std::int64_t epoch = 0;      ///< epochs completed
  /// Increases with each save in this directory: the newest has the largest.
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;  ///< total size of its files
  /// Why it is not complete (manifest, missing files, sizes; checksums are not read); empty if it
  /// is complete.
  std::string damage;

  bool healthy = true;                ///< Manifest::healthy
  std::optional<BestMark> best = {};  ///< Manifest::best

  bool complete() const { return damage.empty(); }  ///< whether it can be used
};

/// Whether `path` is a single checkpoint, intact or not, rather than a directory of checkpoints: it
/// has a manifest, or the name of a checkpoint.
bool is_checkpoint(const std::filesystem::path& path);

/// All entries of `directory` with the name of a checkpoint, newest first. Entries without a
/// readable manifest come first, by step. Only `directory` itself if it is a checkpoint. Empty if
/// there is no such directory. Throws Error (checkpoint) if it cannot be read.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& directory);

/// The best of `found` (list_checkpoints()): the newest that is complete, healthy and marked as
/// best, because each mark supersedes earlier ones; null if there is none.
const CheckpointInfo* find_best(const std::vector<CheckpointInfo>& found);

/// Resolves DIR:best to the best checkpoint of the directory DIR, unless a file has that name.
/// Returns other paths unchanged. Throws Error (checkpoint) if DIR has no best checkpoint.
std::filesystem::path resolve_best(const std::filesystem::path& path);

/// A hint for users of `used`, the newest checkpoint of `directory`, that names the best checkpoint
/// if it is a different one; otherwise empty.
std::string describe_best(const std::filesystem::path& directory,
                          const std::filesystem::path& used);

/// Saves and restores the checkpoints of a run. Every process of the job has one and calls prepare,
/// save and restore at the same step. `ranks` has one member per process; rank 0 is the chief. The
/// other ranks do not need access to the directory. A failure on any rank is an Error (checkpoint)
/// on all ranks and leaves earlier checkpoints untouched.
class CheckpointDirectory {
 public:
  /// Collective over `ranks`.
  CheckpointDirectory(CheckpointOptions options, allreduce::Communicator ranks,
                      std::shared_ptr<Logger> log = make_silent_logger());
  CheckpointDirectory(CheckpointDirectory&&) noexcept;
  CheckpointDirectory& operator=(CheckpointDirectory&&) noexcept;
  ~CheckpointDirectory();

  /// Call before training. Creates the directory and locks it for the lifetime of this object,
  /// recovers complete checkpoints that a crashed run left and removes other leftovers, and checks
  /// that the directory is writable and has space for a checkpoint of `bytes` (checkpoint_bytes).
  /// Warns if the file system has no locks. Collective.
  void prepare(std::uint64_t bytes);

  /// Call after prepare() if the training does not resume. If the directory has checkpoints, throws
  /// Error (checkpoint) or, with `overwrite`, makes the first save() remove them, so that the
  /// directory never has checkpoints of two trainings. Collective.
  void start_over(bool overwrite);

  /// Saves the checkpoint of `state.step` and, unless the options defer it, calls prune().
  /// Collective. The chief writes to the directory. The other ranks verify that their replicas are
  /// identical, as set by verification(); otherwise the error names rank, file and tensor. A
  /// checkpoint of the same step is replaced. If the disk is full and the new checkpoint is
  /// healthy, older checkpoints are removed, except the best one and the newest healthy one that
  /// verifies, and the write is retried. With `keep` 1, the new checkpoint is read back before the
  /// older one is removed. A directory that was removed since prepare() is created again, with a
  /// warning. Throws SaveError if it cannot be written.
  std::filesystem::path save(const ReplicaArrays& arrays, const TrainingState& state,
                             const SaveOptions& options = {});

  /// Removes all but the newest `keep` healthy checkpoints and the best one. A checkpoint that is
  /// not healthy is kept only while it is the newest of all; then one more healthy one is kept too.
  /// Runs on the chief; failures are logged as warnings.
  void prune() const;

  /// Marks a checkpoint of this directory as not healthy: no step after it was good. Collective; a
  /// failure is logged as a warning on the chief.
  void mark_unhealthy(const std::filesystem::path& checkpoint);

  /// Reads the newest complete and undamaged checkpoint, or the directory itself if it is a
  /// checkpoint, into the arrays of every rank: the chief reads and broadcasts. Logs skipped
  /// checkpoints with the reason. A checkpoint that is not healthy is read only if there is no
  /// healthy one. Returns nullopt if there is none or if `resume` is `never`; throws Error if there
  /// is none and `resume` is `require`. A checkpoint of a different model or optimizer is an Error
  /// and is not skipped, as is a newer checkpoint that another rank has under this path and the
  /// chief does not. Collective; does not require prepare().
  std::optional<RestoredCheckpoint> restore(const ReplicaArrays& arrays,
                                            Resume resume = Resume::automatic,
                                            const ExplainMismatch& explain = {});

  /// How replicas are compared: for `automatic`, the choice made by prepare(). Equal on all ranks.
  VerifyCheckpoint verification() const { return options_.verify; }

  /// The checkpoints that the last restore() skipped, with the reason, newest first. Equal on all
  /// ranks.
  const std::vector<std::string>& skipped() const { return skipped_; }

  const CheckpointOptions& options() const { return options_; }  ///< options in effect

 private:
  bool is_chief() const { return ranks_.rank() == 0; }
  void prepare_chief();
  void choose_verification(std::uint64_t bytes);
  std::vector<FileDigest> write_files(std::optional<TemporaryDirectory>& temporary,
                                      const ReplicaArrays& arrays, const TrainingState& state,
                                      bool healthy);
  std::vector<FileDigest> write_on_chief(std::optional<TemporaryDirectory>& temporary,
                                         const ReplicaArrays& arrays, const TrainingState& state,
                                         bool healthy);
  void commit(const std::filesystem::path& temporary, const std::filesystem::path& path,
              const TrainingState& state, std::vector<FileDigest> files,
              const SaveOptions& options);
  bool free_space(std::uint64_t bytes) const;
  void remove_checkpoint(const CheckpointInfo& info) const;
  void remove_replaced();
  void check_chief_sees_newest() const;
  /// Returns the information for the other ranks, as text, and sets `state`.
  std::string restore_on_chief(const ReplicaArrays& arrays, Resume resume,
                               const ExplainMismatch& explain, TrainingState& state);
  std::optional<RestoredCheckpoint> restore_newest(const ReplicaArrays& arrays,
                                                   const ExplainMismatch& explain);

  CheckpointOptions options_;
  allreduce::Communicator ranks_;
  std::shared_ptr<Logger> log_;
  std::unique_ptr<DirectoryLock> lock_;
  /// Parent of the temporary directories of ranks other than the chief, on this node.
  std::filesystem::path workspace_;
  bool prepared_ = false;
  bool replaces_ = false;  // on the chief: the next save removes checkpoints of an earlier training
  bool may_hash_ = false;  // whether to compare hashes if the files cannot be written
  std::vector<std::string> skipped_;
};

}  // namespace lockstep::inline v0::checkpoint
