#include "strategy/checkpoint_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>
#include <utility>

#include "device/cpu.h"
#include "device/error.h"
#include "strategy/checkpoint_agreement.h"
#include "strategy/checkpoint_workspace.h"

namespace lockstep::strategy {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kNamePrefix = "step-";

/// The step in a path that ends in "step-00001000"; nullopt for any other name.
std::optional<std::int64_t> step_of(const fs::path& path) {
  constexpr std::size_t kMaxDigits = 18;
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (!name.starts_with(kNamePrefix)) return std::nullopt;
  const std::string digits = name.substr(kNamePrefix.size());
  if (digits.empty() || digits.size() > kMaxDigits || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(digits);
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
    if (!named) info.step = manifest.step;
    if (manifest.step != info.step)
      throw Error(ErrorCategory::checkpoint, path.string(), fmt::format("needed the manifest of step {}", info.step),
                  fmt::format("it is of step {}", manifest.step));
    check_sizes(path, manifest);
  } catch (const Error& error) {
    info.damage = error.what();
  }
  return info;
}

/// Writes a small file the way a checkpoint will be written.
void check_writable(const fs::path& temporary) {
  const TemporaryDirectory directory(temporary);
  HashedFile file(directory.path() / kStateFile);
  file.write("{}\n");
  file.finish();
}

bool can_be_written(const fs::path& temporary) {
  try {
    check_writable(temporary);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void make_directory(const fs::path& directory) {
  if (is_checkpoint(directory))
    throw Error(ErrorCategory::checkpoint, directory.string(), "needed a directory for checkpoints",
                "it is a checkpoint itself");
  std::error_code error;
  fs::create_directories(directory, error);
  if (!error && !fs::is_directory(directory, error) && !error) error = std::make_error_code(std::errc::not_a_directory);
  if (error)
    throw Error(ErrorCategory::checkpoint, directory.string(), "needed a directory for checkpoints that can be written",
                error.message());
}

void broadcast(const allreduce::Communicator& ranks, std::span<float> values) {
  ranks.broadcast(std::as_writable_bytes(values), 0);
}

}  // namespace

Resume parse_resume(std::string_view name) {
  if (name == "auto") return Resume::automatic;
  if (name == "never") return Resume::never;
  if (name == "must") return Resume::must;
  throw Error(ErrorCategory::input, "--resume", "needed auto, never or must", fmt::format("got \"{}\"", name));
}

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:08}", kNamePrefix, step); }

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / kManifestName, ignored) || (step_of(path) && fs::is_directory(path, ignored));
}

std::vector<CheckpointInfo> list_checkpoints(const fs::path& directory) {
  if (is_checkpoint(directory)) return {inspect(directory)};
  std::vector<CheckpointInfo> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (step_of(entry->path()) && entry->is_directory()) found.push_back(inspect(entry->path()));
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(ErrorCategory::checkpoint, directory.string(), "needed a directory of checkpoints", error.message());
  std::sort(found.begin(), found.end(), [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return std::tie(a.sequence, a.step) > std::tie(b.sequence, b.step);
  });
  return found;
}

CheckpointDirectory::CheckpointDirectory(CheckpointOptions options, allreduce::Communicator ranks,
                                         std::shared_ptr<device::Logger> log)
    : options_(std::move(options)), ranks_(std::move(ranks)), log_(std::move(log)) {
  if (options_.keep < 1)
    throw Error(ErrorCategory::input, "--keep", "needed at least 1 checkpoint to keep",
                fmt::format("got {}", options_.keep));
}

CheckpointDirectory::CheckpointDirectory(CheckpointDirectory&&) noexcept = default;
CheckpointDirectory& CheckpointDirectory::operator=(CheckpointDirectory&&) noexcept = default;
CheckpointDirectory::~CheckpointDirectory() = default;

void CheckpointDirectory::prepare(std::uint64_t bytes) {
  on_every_rank(ranks_, [&]() -> std::string {
    if (!is_chief()) return {};
    make_directory(options_.directory);
    lock_ = std::make_unique<DirectoryLock>(options_.directory, options_.lock_patience);
    remove_leftovers(options_.directory);
    check_writable(temporary_path(0));
    return {};
  });
  check_free_space(bytes);
  prepared_ = true;
}

void CheckpointDirectory::check_free_space(std::uint64_t bytes) {
  const std::vector<std::string> places = on_every_rank(ranks_, [&] {
    workspace_ = options_.directory;
    if (!is_chief() && !can_be_written(temporary_path(0))) {
      workspace_ = fs::temp_directory_path();
      check_writable(temporary_path(0));
    }
    remove_leftovers_of_the_dead(workspace_);
    // Ranks that do not see the directory share their host's temporary one.
    const bool sees_directory = workspace_ == options_.directory;
    return json{{"path", sees_directory ? workspace_.string() : device::host_name() + ":" + workspace_.string()},
                {"free", free_bytes(workspace_)}}
        .dump();
  });
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> ranks_and_free;
  for (const std::string& text : places) {
    const json place = json::parse(text);
    auto& [ranks, free] =
        ranks_and_free.try_emplace(place["path"].get<std::string>(), 0, std::numeric_limits<std::uint64_t>::max())
            .first->second;
    ranks += 1;
    free = std::min(free, place["free"].get<std::uint64_t>());
  }
  for (const auto& [path, found] : ranks_and_free) {
    const auto [ranks, free] = found;
    if (free / ranks < bytes)
      throw Error(ErrorCategory::checkpoint, path,
                  fmt::format("needed {} bytes free for a checkpoint{}", bytes * ranks,
                              ranks == 1 ? "" : fmt::format(" of {} ranks, {} bytes each", ranks, bytes)),
                  fmt::format("{} are free", free));
  }
}

fs::path CheckpointDirectory::temporary_path(std::int64_t step) const {
  if (is_chief()) return options_.directory / chief_temporary_name(step);
  return workspace_ / worker_temporary_name(ranks_.rank());
}

fs::path CheckpointDirectory::save(const ReplicaArrays& arrays, const TrainingState& state,
                                   const SaveOptions& options) {
  if (!prepared_) prepare(checkpoint_bytes(arrays));
  std::optional<TemporaryDirectory> temporary;
  std::vector<FileDigest> files;
  const std::vector<std::string> descriptions = on_every_rank(ranks_, [&] {
    temporary.emplace(temporary_path(state.step));
    files = write_checkpoint_files(temporary->path(), arrays, state,
                                   is_chief() ? data::Durability::synced : data::Durability::cached);
    return describe_files(state, files);
  });
  check_identical(ranks_, descriptions, arrays);
  fs::path path = options_.directory / checkpoint_name(state.step);
  on_every_rank(ranks_, [&]() -> std::string {
    if (is_chief()) {
      commit(temporary->path(), path, state, files, options.healthy);
      temporary->release();
    }
    return {};
  });
  if (options.prune) prune();
  return path;
}

void CheckpointDirectory::commit(const fs::path& temporary, const fs::path& path, const TrainingState& state,
                                 std::vector<FileDigest> files, bool healthy) const {
  std::uint64_t sequence = 0;
  for (const CheckpointInfo& info : list_checkpoints(options_.directory))
    if (info.sequence != std::numeric_limits<std::uint64_t>::max()) sequence = std::max(sequence, info.sequence);
  write_manifest(temporary, {state.step, state.epoch, sequence + 1, std::move(files), healthy});
  replace_directory(temporary, path);
}

void CheckpointDirectory::prune() const {
  if (!is_chief()) return;
  std::vector<CheckpointInfo> found;
  try {
    found = list_checkpoints(options_.directory);
  } catch (const Error& error) {
    return log_->warn("cannot remove old checkpoints: {}", error.what());
  }
  std::erase_if(found, [](const CheckpointInfo& info) { return !info.complete(); });
  // Steps that are skipped after the newest healthy checkpoint may be its own fault: then one more stays.
  int healthy_to_keep = options_.keep + (found.empty() || found.front().healthy ? 0 : 1);
  for (const CheckpointInfo& info : found) {
    const bool stays = info.healthy ? healthy_to_keep-- > 0 : &info == &found.front();
    if (!stays) remove(info);
  }
}

void CheckpointDirectory::remove(const CheckpointInfo& info) const {
  // Under its hidden name first: half removed it must not look like a checkpoint.
  const fs::path hidden = options_.directory / chief_temporary_name(info.step);
  std::error_code error;
  fs::rename(info.path, hidden, error);
  if (!error) fs::remove_all(hidden, error);
  if (error) log_->warn("cannot remove the old checkpoint {}: {}", info.path.string(), error.message());
}

void CheckpointDirectory::mark_unhealthy(const fs::path& checkpoint) {
  on_every_rank(ranks_, [&]() -> std::string {
    if (!is_chief()) return {};
    try {
      Manifest manifest = read_manifest(checkpoint);
      manifest.healthy = false;
      write_manifest(checkpoint, manifest);
    } catch (const Error& error) {
      log_->warn("cannot mark {} as unhealthy: {}", checkpoint.string(), error.what());
    }
    return {};
  });
}

std::optional<RestoredCheckpoint> CheckpointDirectory::restore(const ReplicaArrays& arrays, Resume resume) {
  skipped_.clear();
  if (resume == Resume::never) return std::nullopt;
  const auto read = [&] { return is_chief() ? restore_on_chief(arrays, resume) : std::string(); };
  const std::string told = on_every_rank(ranks_, read).front();
  const json news = json::parse(told);
  news["skipped"].get_to(skipped_);
  const std::string path = news["path"];
  if (path.empty()) return std::nullopt;
  broadcast(ranks_, arrays.parameters);
  broadcast(ranks_, arrays.buffers);
  for (const Slot& slot : arrays.slots) broadcast(ranks_, slot.values);
  return RestoredCheckpoint{path, parse_training_state(news["state"], path)};
}

std::string CheckpointDirectory::restore_on_chief(const ReplicaArrays& arrays, Resume resume) {
  const std::optional<RestoredCheckpoint> restored = restore_newest(arrays);
  for (const std::string& reason : skipped_) log_->warn("skipped a checkpoint: {}", reason);
  if (!restored && resume == Resume::must)
    throw Error(ErrorCategory::checkpoint, options_.directory.string(), "needed a complete checkpoint",
                skipped_.empty() ? "there is none"
                                 : fmt::format("{} damaged, the newest: {}", skipped_.size(), skipped_.front()));
  return json{{"skipped", skipped_},
              {"path", restored ? restored->path.string() : ""},
              {"state", restored ? to_json_text(restored->state) : ""}}
      .dump();
}

std::optional<RestoredCheckpoint> CheckpointDirectory::restore_newest(const ReplicaArrays& arrays) {
  std::vector<CheckpointInfo> found = list_checkpoints(options_.directory);
  const auto unhealthy = std::ranges::stable_partition(found, &CheckpointInfo::healthy);
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
    check_checkpoint_fits(info.path, arrays);
    for (const CheckpointInfo& newer : unhealthy)
      if (info.healthy && newer.sequence > info.sequence)
        skipped_.push_back(
            fmt::format("[{}] expected a healthy checkpoint; got one of skipped steps", newer.path.string()));
    if (!info.healthy) log_->warn("{} is not healthy, but there is no other checkpoint", info.path.string());
    return RestoredCheckpoint{info.path, read_checkpoint_files(info.path, arrays)};
  }
  return std::nullopt;
}

}  // namespace lockstep::strategy
