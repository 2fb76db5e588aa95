#include "lockstep/checkpoint/directory.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/agreement.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/checkpoint/workspace.h"

namespace lockstep::inline v0::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kNamePrefix = "step-";

/// The step in a path that ends in "step-00001000"; nullopt for any other name.
std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (!name.starts_with(kNamePrefix)) return std::nullopt;
  const auto step = parse_number<std::int64_t>(name.substr(kNamePrefix.size()));
  return step >= 0 ? step : std::nullopt;
}

CheckpointInfo inspect(const fs::path& path) {
  const std::optional<std::int64_t> named = step_of(path);
  CheckpointInfo info{path, named.value_or(0), 0, std::numeric_limits<std::uint64_t>::max(), 0, {}};
  try {
    const Manifest manifest = read_manifest(path);
    info.epoch = manifest.epoch;
    info.sequence = manifest.sequence;
    info.bytes = manifest.total_bytes();
    info.healthy = manifest.healthy;
    info.best = manifest.best;
    if (!named) info.step = manifest.step;
    if (manifest.step != info.step)
      throw Error(ErrorCategory::checkpoint, path.string(),
                  fmt::format("expected the manifest of step {}", info.step),
                  fmt::format("it is of step {}", manifest.step));
    check_sizes(path, manifest);
  } catch (const Error& error) {
    info.damage = error.what();
  }
  return info;
}

/// Writes a small file in the same way as a checkpoint.
void check_writable(const fs::path& parent, const std::string& prefix) {
  const TemporaryDirectory directory(parent, prefix);
  HashedFile file(directory.path() / kStateFile);
  file.write("{}\n");
  file.finish();
}

/// Bytes of the complete checkpoints in `directory` that may be removed to free space: all but the
/// newest and the best.
std::uint64_t removable_bytes(const fs::path& directory) {
  std::uint64_t bytes = 0;
  bool is_newest = true;
  const std::vector<CheckpointInfo> found = list_checkpoints(directory);
  const CheckpointInfo* const best = find_best(found);
  for (const CheckpointInfo& info : found) {
    if (!info.complete()) continue;
    if (!std::exchange(is_newest, false) && &info != best) bytes += info.bytes;
  }
  return bytes;
}

/// The temporary directory of a rank on its node, exchanged between ranks.
struct NodeSpace {
  std::string place;       ///< for messages
  std::uint64_t free = 0;  ///< bytes
  std::string trouble;     ///< why the rank cannot write there; empty if it can
};

std::string to_text(const NodeSpace& space) {
  return dump_json(
      json{{"place", encode_bytes(space.place)}, {"free", space.free}, {"trouble", space.trouble}});
}

NodeSpace parse_node_space(const std::string& text) {
  const json parsed = parse_json(text, ErrorCategory::communication, "checkpoint");
  return {decode_bytes(parsed["place"].get<std::string>()), parsed["free"], parsed["trouble"]};
}

/// The first reason why some rank cannot write `bytes` on its node; empty if all can.
std::string trouble_with_nodes(std::span<const std::string> texts, std::uint64_t bytes) {
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> ranks_and_free;
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    const NodeSpace space = parse_node_space(texts[rank]);
    if (!space.trouble.empty()) return fmt::format("rank {}: {}", rank, space.trouble);
    auto& [ranks, free] = ranks_and_free.try_emplace(space.place, 0, space.free).first->second;
    ranks += 1;
    free = std::min(free, space.free);
  }
  for (const auto& [place, found] : ranks_and_free)
    if (const auto [ranks, free] = found; free / ranks < bytes)
      return fmt::format("{} has {} bytes free for {} ranks, {} bytes each", place, free, ranks,
                         bytes);
  return {};
}

void broadcast(const allreduce::Communicator& ranks, std::span<float> values) {
  ranks.broadcast(std::as_writable_bytes(values), 0);
}

}  // namespace

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / kManifestName, ignored) ||
         (step_of(path) && fs::is_directory(path, ignored));
}

std::vector<CheckpointInfo> list_checkpoints(const fs::path& directory) {
  if (is_checkpoint(directory)) return {inspect(directory)};
  std::vector<CheckpointInfo> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unreadable;  // the file system does not return types of entries, or a link
    if (step_of(entry->path()) && entry->is_directory(unreadable))
      found.push_back(inspect(entry->path()));
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(ErrorCategory::checkpoint, directory.string(),
                "expected a directory of checkpoints", error.message());
  std::sort(found.begin(), found.end(), [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return std::tie(a.sequence, a.step) > std::tie(b.sequence, b.step);
  });
  return found;
}

const CheckpointInfo* find_best(const std::vector<CheckpointInfo>& found) {
  const auto best = std::ranges::find_if(found, [](const CheckpointInfo& info) {
    return info.best && info.complete() && info.healthy;
  });
  return best == found.end() ? nullptr : &*best;
}

fs::path resolve_best(const fs::path& path) {
  constexpr std::string_view kSuffix = ":best";
  const std::string& text = path.native();
  std::error_code ignored;
  if (!text.ends_with(kSuffix) || fs::exists(path, ignored)) return path;
  const fs::path directory = text.substr(0, text.size() - kSuffix.size());
  const std::vector<CheckpointInfo> found = list_checkpoints(directory);
  if (const CheckpointInfo* const best = find_best(found)) return best->path;
  throw Error(ErrorCategory::checkpoint, text,
              "expected a directory with a best checkpoint, which train --keep-best marks",
              found.empty() ? "there is no checkpoint in it" : "none of its checkpoints is marked");
}

std::string describe_best(const fs::path& directory, const fs::path& used) try {
  if (is_checkpoint(directory)) return {};
  const std::vector<CheckpointInfo> found = list_checkpoints(directory);
  const CheckpointInfo* const best = find_best(found);
  if (best == nullptr || best->path.filename() == used.filename()) return {};
  return fmt::format("{} is the newest checkpoint; the best one, with {} {:.6g}, is {}: {}:best",
                     used.string(), best->best->metric, best->best->value,
                     best->path.filename().string(), directory.string());
} catch (const Error&) {
  return {};  // the checkpoint was already read: not an error
}

CheckpointDirectory::CheckpointDirectory(CheckpointOptions options, allreduce::Communicator ranks,
                                         std::shared_ptr<Logger> log)
    : options_(std::move(options)), ranks_(std::move(ranks)), log_(std::move(log)) {
  if (options_.keep < 1)
    throw Error(ErrorCategory::input, "--keep", "expected at least 1 checkpoint to keep",
                fmt::format("got {}", options_.keep));
}

CheckpointDirectory::CheckpointDirectory(CheckpointDirectory&&) noexcept = default;
CheckpointDirectory& CheckpointDirectory::operator=(CheckpointDirectory&&) noexcept = default;
CheckpointDirectory::~CheckpointDirectory() = default;

void CheckpointDirectory::prepare(std::uint64_t bytes) {
  const std::vector<std::string> texts = on_every_rank(ranks_, [&]() -> std::string {
    if (!is_chief()) return {};
    prepare_chief();
    const std::uint64_t free = free_bytes(options_.directory);
    if (free < bytes && free + removable_bytes(options_.directory) < bytes)
      throw Error(ErrorCategory::checkpoint, options_.directory.string(),
                  fmt::format("expected {} bytes free for a checkpoint", bytes),
                  fmt::format("{} are free", free));
    return dump_json(json{{"bytes", bytes}, {"verify", static_cast<int>(options_.verify)}});
  });
  // Use the values of the chief, so that all ranks make the same choice.
  const json chief = parse_json(texts.front(), ErrorCategory::communication, "checkpoint");
  options_.verify = static_cast<VerifyCheckpoint>(chief["verify"].get<int>());
  choose_verification(chief["bytes"]);
  prepared_ = true;
}

void CheckpointDirectory::prepare_chief() {
  const fs::path& directory = options_.directory;
  if (is_checkpoint(directory))
    throw Error(ErrorCategory::checkpoint, directory.string(),
                "expected a directory for checkpoints", "it is a checkpoint itself");
  if (step_of(directory))
    throw Error(
        ErrorCategory::checkpoint, directory.string(),
        fmt::format("expected another name than that of a checkpoint, {}NUMBER", kNamePrefix),
        "got it for their directory");
  make_directories(directory);
  const auto start = std::chrono::steady_clock::now();
  bool is_reported = false;
  lock_ = std::make_unique<DirectoryLock>(
      directory, options_.lock_patience, [&](const std::string& holder) {
        if (is_reported || std::chrono::steady_clock::now() - start < options_.lock_silence) return;
        is_reported = true;
        log_->info(
            fmt::format("{}: waiting for {}, which writes there", directory.string(), holder));
      });
  if (lock_->is_lease())
    log_->warn(fmt::format(
        "{}: its file system does not support locks ({}); using a lease to keep other runs out",
        directory.string(), lock_->why_lease()));
  const Leftovers which = lock_->is_lease() ? Leftovers::abandoned : Leftovers::all;
  for (const fs::path& recovered : recover_checkpoints(directory, which))
    log_->warn(
        fmt::format("{} was complete but not yet renamed when an earlier run ended; recovered it",
                    recovered.string()));
  remove_leftovers(directory, which);
  check_writable(directory, chief_temporary_prefix(0));
}

void CheckpointDirectory::start_over(bool overwrite) {
  on_every_rank(ranks_, [&]() -> std::string {
    if (!is_chief()) return {};
    const std::vector<CheckpointInfo> found = list_checkpoints(options_.directory);
    if (!found.empty() && !overwrite)
      throw Error(ErrorCategory::checkpoint, options_.directory.string(),
                  "expected a directory without checkpoints for --resume never: use another "
                  "--checkpoint-dir, or --overwrite to replace what is in this one",
                  fmt::format("got one with {}, the newest {}", counted(found.size(), "checkpoint"),
                              found.front().path.filename().string()));
    replaces_ = !found.empty();
    return {};
  });
}

void CheckpointDirectory::choose_verification(std::uint64_t bytes) {
  if (ranks_.size() == 1) options_.verify = VerifyCheckpoint::none;
  const bool is_automatic = options_.verify == VerifyCheckpoint::automatic;
  may_hash_ = is_automatic;
  std::string reason;
  if (is_automatic && bytes > kMaxFullBytes) {
    options_.verify = VerifyCheckpoint::hash;
    reason = fmt::format("more than {} MB", kMaxFullBytes / 1'000'000);
  } else if (is_automatic || options_.verify == VerifyCheckpoint::full) {
    const std::vector<std::string> texts = on_every_rank(ranks_, [&] {
      NodeSpace space;
      try {
        workspace_ = node_directory();
        if (workspace_.empty())
          throw Error(ErrorCategory::checkpoint, "TMPDIR",
                      "expected a writable directory on local storage of this node",
                      "got none, and /tmp is not one either");
        if (!is_chief()) {
          remove_worker_leftovers(workspace_);
          check_writable(workspace_, worker_temporary_prefix(ranks_.rank()));
        }
        space = {
            fmt::format("{}:{}", host_name(), workspace_.string()), free_bytes(workspace_), {}};
      } catch (const Error& error) {
        space.trouble = error.what();
      }
      return to_text(space);
    });
    reason = trouble_with_nodes(texts, bytes);
    if (!reason.empty() && !is_automatic)
      throw Error(
          ErrorCategory::checkpoint, "checkpoint",
          fmt::format(
              "expected {} bytes per rank on local storage of each node (--verify-checkpoint full)",
              bytes),
          "got " + reason);
    options_.verify = reason.empty() ? VerifyCheckpoint::full : VerifyCheckpoint::hash;
  }
  if (!is_automatic || !is_chief() || ranks_.size() == 1) return;
  const double megabytes = static_cast<double>(bytes) / 1e6;
  if (options_.verify == VerifyCheckpoint::full)
    log_->debug(fmt::format(
        "--verify-checkpoint full: a checkpoint takes up to {:.1f} MB; the other ranks write "
        "theirs to {} on their "
        "node, compare it and remove it",
        megabytes, workspace_.string()));
  else
    log_->info(fmt::format(
        "--verify-checkpoint hash: a checkpoint takes up to {:.1f} MB; the other ranks compare "
        "hashes ({})",
        megabytes, reason));
}

fs::path CheckpointDirectory::save(const ReplicaArrays& arrays, const TrainingState& state,
                                   const SaveOptions& options) {
  if (!prepared_) prepare(checkpoint_bytes(arrays, state));
  std::optional<TemporaryDirectory> temporary;
  std::vector<FileDigest> files;
  fs::path path = options_.directory / checkpoint_name(state.step);
  const auto together = [&](const std::function<std::string()>& work) {
    try {
      return on_every_rank(ranks_, work);
    } catch (const Error& error) {
      if (error.category() == ErrorCategory::checkpoint) throw SaveError(error);
      throw;
    }
  };
  const std::vector<std::string> descriptions = together([&] {
    files = write_files(temporary, arrays, state, options.healthy);
    return describe_files(state, files);
  });
  if (options_.verify != VerifyCheckpoint::none) check_identical(ranks_, descriptions, arrays);
  together([&]() -> std::string {
    if (!is_chief()) {
      temporary.reset();
      return {};
    }
    commit(temporary->path(), path, state, std::move(files), options);
    temporary->release();
    if (options.prune) prune();
    return {};
  });
  return path;
}

std::vector<FileDigest> CheckpointDirectory::write_files(
    std::optional<TemporaryDirectory>& temporary, const ReplicaArrays& arrays,
    const TrainingState& state, bool healthy) {
  if (is_chief()) return write_on_chief(temporary, arrays, state, healthy);
  if (options_.verify == VerifyCheckpoint::none) return {};
  if (options_.verify == VerifyCheckpoint::hash)
    return write_checkpoint_files({}, arrays, state, Destination::nowhere);
  try {
    temporary.emplace(workspace_, worker_temporary_prefix(ranks_.rank()), true);
    return write_checkpoint_files(temporary->path(), arrays, state, Destination::cached);
  } catch (const Error& error) {
    if (!may_hash_) throw;
    temporary.reset();
    log_->warn(
        fmt::format("only the hash of this rank's checkpoint is compared: {}", error.what()));
    return write_checkpoint_files({}, arrays, state, Destination::nowhere);
  }
}

std::vector<FileDigest> CheckpointDirectory::write_on_chief(
    std::optional<TemporaryDirectory>& temporary, const ReplicaArrays& arrays,
    const TrainingState& state, bool healthy) {
  if (lock_->is_removed()) {
    std::error_code unknown;
    if (!fs::exists(options_.directory, unknown))
      log_->warn(fmt::format("{} was removed while the training writes there: it is created again",
                             options_.directory.string()));
    prepare_chief();
  }
  lock_->check_held();
  const auto write = [&] {
    temporary.emplace(options_.directory, chief_temporary_prefix(state.step));
    return write_checkpoint_files(temporary->path(), arrays, state, Destination::synced);
  };
  const std::uint64_t bytes = checkpoint_bytes(arrays, state);
  // Never remove anything for a checkpoint that is not healthy.
  if (healthy && free_bytes(options_.directory) < bytes) free_space(bytes);
  try {
    return write();
  } catch (const Error& error) {
    temporary.reset();
    // A quota may be exceeded, which the free space does not show.
    if (!healthy || !is_out_of_space(error) ||
        !free_space(std::numeric_limits<std::uint64_t>::max()))
      throw;
  }
  return write();
}

void CheckpointDirectory::commit(const fs::path& temporary, const fs::path& path,
                                 const TrainingState& state, std::vector<FileDigest> files,
                                 const SaveOptions& options) {
  std::uint64_t sequence = 0;
  for (const CheckpointInfo& info : list_checkpoints(options_.directory))
    if (info.sequence != std::numeric_limits<std::uint64_t>::max())
      sequence = std::max(sequence, info.sequence);
  const Manifest manifest{state.step,       state.epoch,     sequence + 1,
                          std::move(files), options.healthy, options.best};
  write_manifest(temporary, manifest);
  // There is no other checkpoint to fall back to.
  if (options_.keep == 1) check_contents(temporary, manifest);
  lock_->check_held();
  // After a crash between the two, the next start recovers the new one from its hidden name.
  if (replaces_ && !options.healthy)
    throw Error(ErrorCategory::checkpoint, options_.directory.string(),
                "expected a healthy checkpoint to replace those of the earlier training "
                "(--overwrite)",
                "the last steps were skipped");
  if (replaces_) remove_replaced();
  replace_directory(temporary, path);
}

/// Removes the checkpoints of the training that this one replaces.
void CheckpointDirectory::remove_replaced() {
  for (const CheckpointInfo& info : list_checkpoints(options_.directory)) remove_checkpoint(info);
  if (!list_checkpoints(options_.directory).empty())
    throw Error(ErrorCategory::checkpoint, options_.directory.string(),
                "expected to remove the checkpoints of the earlier training (--overwrite)",
                "the warnings above say why it failed");
  replaces_ = false;
}

void CheckpointDirectory::prune() const {
  if (!is_chief()) return;
  const FileProgress progress(ranks_.activity());  // the other ranks may be waiting for this one
  try {
    std::vector<CheckpointInfo> found = list_checkpoints(options_.directory);
    std::erase_if(found, [](const CheckpointInfo& info) { return !info.complete(); });
    // The newest healthy checkpoint may be the cause of steps skipped after it, so keep one more in
    // that case.
    std::int64_t healthy_to_keep =
        std::int64_t{options_.keep} + (found.empty() || found.front().healthy ? 0 : 1);
    const CheckpointInfo* const best = find_best(found);
    for (const CheckpointInfo& info : found) {
      const bool stays =
          info.healthy ? healthy_to_keep-- > 0 || &info == best : &info == &found.front();
      if (!stays) remove_checkpoint(info);
    }
  } catch (const Error& error) {
    // The new checkpoint is saved; the next save retries the removal.
    log_->warn(fmt::format("cannot remove old checkpoints: {}", error.what()));
  }
}

void CheckpointDirectory::mark_unhealthy(const fs::path& checkpoint) {
  on_every_rank(ranks_, [&]() -> std::string {
    if (!is_chief()) return {};
    try {
      Manifest manifest = read_manifest(checkpoint);
      manifest.healthy = false;
      write_manifest(checkpoint, manifest);
    } catch (const Error& error) {
      log_->warn(fmt::format("cannot mark {} as unhealthy: {}", checkpoint.string(), error.what()));
    }
    return {};
  });
}

/// Removes the oldest checkpoints until `bytes` are free, but never the best one nor the newest
/// healthy one that verifies, and none if none verifies. Returns whether anything was removed.
bool CheckpointDirectory::free_space(std::uint64_t bytes) const {
  std::vector<CheckpointInfo> found = list_checkpoints(options_.directory);
  std::erase_if(found, [](const CheckpointInfo& info) { return !info.complete(); });
  const auto verifies = [](const CheckpointInfo& info) {
    try {
      check_contents(info.path, read_manifest(info.path));
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  const bool has_healthy = std::ranges::any_of(found, &CheckpointInfo::healthy);
  const auto kept = std::ranges::find_if(found, [&](const CheckpointInfo& info) {
    return (info.healthy || !has_healthy) && verifies(info);
  });
  if (kept == found.end()) return false;
  const CheckpointInfo* const best = find_best(found);
  bool removed = false;
  for (auto oldest = found.end() - 1; oldest > kept && free_bytes(options_.directory) < bytes;
       --oldest) {
    if (&*oldest == best) continue;
    log_->warn(fmt::format("removing {}: {} has no space for the next checkpoint",
                           oldest->path.string(), options_.directory.string()));
    remove_checkpoint(*oldest);
    removed = true;
  }
  return removed;
}

void CheckpointDirectory::remove_checkpoint(const CheckpointInfo& info) const {
  // Rename it to a hidden name and sync first: a partly removed directory must not look like a
  // checkpoint.
  const fs::path hidden = options_.directory / unpredictable_name(removal_prefix(info.step));
  std::error_code error;
  fs::rename(info.path, hidden, error);
  if (!error) {
    sync_directory(options_.directory);
    fs::remove_all(hidden, error);
  }
  if (error)
    log_->warn(fmt::format("cannot remove the old checkpoint {}: {}", info.path.string(),
                           error.message()));
  note_file_progress();
}

std::optional<RestoredCheckpoint> CheckpointDirectory::restore(const ReplicaArrays& arrays,
                                                               Resume resume,
                                                               const ExplainMismatch& explain) {
  skipped_.clear();
  if (resume == Resume::never) return std::nullopt;
  check_chief_sees_newest();
  TrainingState state;  // on the chief
  const auto read = [&] {
    return is_chief() ? restore_on_chief(arrays, resume, explain, state) : std::string();
  };
  const std::string packed = on_every_rank(ranks_, read).front();
  const json result = parse_json(packed, ErrorCategory::communication, "resume");
  skipped_.clear();
  for (const json& reason : result["skipped"])
    skipped_.push_back(decode_bytes(reason.get<std::string>()));
  const std::string path = decode_bytes(result["path"].get<std::string>());
  if (path.empty()) return std::nullopt;
  broadcast(ranks_, arrays.parameters);
  broadcast(ranks_, arrays.buffers);
  for (const Slot& slot : arrays.slots) broadcast(ranks_, slot.values);
  broadcast_file(ranks_, state.tokenizer);
  RestoredCheckpoint restored{path, parse_training_state(result["state"], path)};
  restored.state.tokenizer = std::move(state.tokenizer);
  return restored;
}

/// Compares the newest complete checkpoint that each rank finds under the path. The chief may have
/// moved to another host whose disk has no checkpoints, and would silently start from the
/// beginning.
void CheckpointDirectory::check_chief_sees_newest() const {
  if (ranks_.size() == 1) return;
  const std::vector<std::string> texts = on_every_rank(ranks_, [&] {
    json found = {{"host", host_name()},
                  {"directory", encode_bytes(options_.directory.native())},
                  {"step", -1},
                  {"sequence", 0}};
    try {
      for (const CheckpointInfo& info : list_checkpoints(options_.directory)) {
        if (!info.complete()) continue;
        found["step"] = info.step;
        found["sequence"] = info.sequence;
        break;
      }
    } catch (const Error&) {  // if the chief cannot read it, the restore reports the error
    }
    return dump_json(found);
  });
  const auto parsed = [&](std::size_t rank) {
    return parse_json(texts[rank], ErrorCategory::communication, "resume");
  };
  const json chief = parsed(0);
  const auto described = [](const json& found) {
    return found["step"] < 0 ? "none" : checkpoint_name(found["step"].get<std::int64_t>());
  };
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    const json other = parsed(rank);
    if (other["step"] < 0 || (chief["step"] >= 0 && other["sequence"] <= chief["sequence"]))
      continue;
    throw Error(ErrorCategory::checkpoint, "resume",
                "expected rank 0, which reads checkpoints, to have the newest; start it on a host "
                "that has it, copy the "
                "checkpoint there, or begin again in another --checkpoint-dir",
                fmt::format("rank {} on {} has {} in {} and rank 0 on {} has {}", rank,
                            other["host"].get<std::string>(), described(other),
                            decode_bytes(other["directory"].get<std::string>()),
                            chief["host"].get<std::string>(), described(chief)));
  }
}

std::string CheckpointDirectory::restore_on_chief(const ReplicaArrays& arrays, Resume resume,
                                                  const ExplainMismatch& explain,
                                                  TrainingState& state) {
  const std::optional<RestoredCheckpoint> restored = restore_newest(arrays, explain);
  for (const std::string& reason : skipped_)
    log_->warn(fmt::format("skipped a checkpoint: {}", reason));
  if (!restored && resume == Resume::require)
    throw Error(ErrorCategory::checkpoint, options_.directory.string(),
                "expected a complete checkpoint",
                skipped_.empty()
                    ? "there is none"
                    : fmt::format("{} damaged, the newest: {}", skipped_.size(), skipped_.front()));
  if (restored) state = restored->state;
  json skipped = json::array();
  for (const std::string& reason : skipped_) skipped.push_back(encode_bytes(reason));
  return dump_json(json{{"skipped", std::move(skipped)},
                        {"path", restored ? encode_bytes(restored->path.native()) : ""},
                        {"state", restored ? to_json_text(restored->state) : ""}});
}

std::optional<RestoredCheckpoint> CheckpointDirectory::restore_newest(
    const ReplicaArrays& arrays, const ExplainMismatch& explain) {
  std::vector<CheckpointInfo> found = list_checkpoints(options_.directory);
  std::stable_partition(found.begin(), found.end(), std::mem_fn(&CheckpointInfo::healthy));
  for (const CheckpointInfo& info : found) {
    try {
      if (!info.complete()) {
        skipped_.push_back(info.damage);
        continue;
      }
      check_contents(info.path, read_manifest(info.path));
    } catch (const Error& error) {
      skipped_.emplace_back(error.what());
      continue;
    }
    try {
      check_checkpoint_fits(info.path, arrays);
    } catch (const Error&) {
      const fs::path state = info.path / kStateFile;
      if (explain)
        explain({info.path, parse_training_state(read_small_file(state), state.string())});
      throw;
    }
    for (const CheckpointInfo& newer : found)
      if (info.healthy && !newer.healthy && newer.sequence > info.sequence)
        skipped_.push_back(fmt::format(
            "[{}] expected a healthy checkpoint, got one saved while steps were skipped",
            newer.path.string()));
    if (!info.healthy)
      log_->warn(
          fmt::format("{} is not healthy, but there is no other checkpoint", info.path.string()));
    return RestoredCheckpoint{info.path, read_checkpoint_files(info.path, arrays)};
  }
  return std::nullopt;
}

}  // namespace lockstep::inline v0::checkpoint
