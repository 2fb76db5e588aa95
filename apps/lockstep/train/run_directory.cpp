#include "apps/lockstep/train/run_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/lockstep/model_source.h"
#include "apps/lockstep/torchscript.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/agreement.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/train/fit/fit_state.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRuns = "runs";

/// The directories (or files) runs/NAME-N by N. Empty if runs does not exist.
std::map<std::int64_t, fs::path> runs_of(const std::string& name) {
  std::map<std::int64_t, fs::path> runs;
  std::error_code error;
  for (fs::directory_iterator entry(kRuns, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string found = entry->path().filename().string();
    if (!found.starts_with(name + "-")) continue;
    // Limited to 32 bits, so that N + 1 does not overflow.
    if (const auto number = parse_number<std::int32_t>(found.substr(name.size() + 1));
        number && *number > 0)
      runs[*number] = entry->path();
  }
  return runs;
}

fs::path create_run(const std::string& name) {
  checkpoint::make_directories(kRuns);
  const auto runs = runs_of(name);
  for (std::int64_t number = runs.empty() ? 1 : runs.rbegin()->first + 1;; ++number) {
    const fs::path path = fs::path(kRuns) / fmt::format("{}-{}", name, number);
    if (!fs::create_directory(path)) continue;  // another training created it meanwhile
    checkpoint::sync_directory(kRuns);
    return path;
  }
}

/// The options of a training, without those for checkpoints and output.
nlohmann::json training_options(nlohmann::json options) {
  for (const char* name : {"checkpoint-dir", "resume", "overwrite", "log-format", "log-every",
                           "events", "quiet", "verbose"})
    options.erase(name);
  return options;
}

/// The newest complete checkpoint; null if there is none.
const checkpoint::CheckpointInfo* newest(const std::vector<checkpoint::CheckpointInfo>& found) {
  const auto complete = std::ranges::find_if(found, &checkpoint::CheckpointInfo::complete);
  return complete == found.end() ? nullptr : &*complete;
}

/// `text` as a word of a shell command.
std::string shell_word(const std::string& text) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-./:=,+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace

std::string network_name(const std::string& model) {
  const bool is_file = model.ends_with(".json") || is_onnx(model) || is_torchscript(model);
  std::string name = is_file ? fs::path(model).stem().string() : model.substr(0, model.find(':'));
  // "step-1" is the name of a checkpoint.
  return name.empty() || name == "step" ? "model" : name;
}

RunDirectory::RunDirectory(const allreduce::Communicator& ranks, const std::string& model)
    : is_chief_(ranks.rank() == 0) {
  const auto create = [&]() -> std::string {
    if (!is_chief_) return {};
    const auto refuse = [](const std::string& reason) {
      throw Error(ErrorCategory::checkpoint, kRuns,
                  "expected to create a directory for the checkpoints of this training; "
                  "--checkpoint-dir DIR names another place, and --checkpoint-dir none trains "
                  "without saving",
                  reason);
    };
    try {
      return create_run(network_name(model)).string();
    } catch (const Error& error) {
      refuse(error.message().actual);
    } catch (const fs::filesystem_error& error) {
      refuse(error.code().message());
    }
    return {};
  };
  path_ = checkpoint::on_every_rank(ranks, create).front();
}

RunDirectory::~RunDirectory() {
  if (!is_chief_) return;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;  // ignored: a file without a known type is kept
    const bool is_lock =
        entry->path().filename().string().starts_with(".") && entry->is_regular_file(unknown);
    if (!is_lock) return;
  }
  if (error) return;
  fs::remove_all(path_, error);  // keep runs/, in which another training may be starting
}

std::string unfinished_run(const std::string& model, const nlohmann::json& options) {
  // Limits the start-up delay with many finished runs.
  constexpr int kMaxRuns = 20;
  const auto own_options = training_options(options);
  const auto runs = runs_of(network_name(model));
  int examined = 0;
  for (auto run = runs.rbegin(); run != runs.rend() && examined < kMaxRuns; ++run, ++examined) {
    try {
      const auto found = checkpoint::list_checkpoints(run->second);
      const checkpoint::CheckpointInfo* const last = newest(found);
      if (last == nullptr) continue;
      const fs::path file = last->path / checkpoint::kStateFile;
      const checkpoint::TrainingState state =
          checkpoint::parse_training_state(checkpoint::read_small_file(file), file.string());
      const nlohmann::json stored = state.configuration->value(kOptionsKey, nlohmann::json());
      if (state.configuration->contains(train::kFinishedKey) || !stored.is_object() ||
          training_options(stored) != own_options)
        continue;
      return fmt::format(
          "{} has a training with the same options that has not ended, saved at step {}: "
          "--checkpoint-dir {} continues it, unless it is still running",
          run->second.string(), state.step, shell_word(run->second.string()));
    } catch (const std::exception&) {  // a damaged run does not prevent the training
    }
  }
  return {};
}

std::string ending_text(const fs::path& directory, const TrainArguments& arguments, int signal) {
  if (directory.empty()) return "nothing was saved (--checkpoint-dir none)\n";
  const std::string where = directory.string();
  std::vector<checkpoint::CheckpointInfo> found;
  try {
    found = checkpoint::list_checkpoints(directory);
  } catch (const Error& error) {  // the checkpoints still exist
    return fmt::format("{} cannot be listed: {}\n", where, error.message().actual);
  }
  const checkpoint::CheckpointInfo* const last = newest(found);
  if (last == nullptr) return fmt::format("nothing was saved in {}\n", where);
  const checkpoint::CheckpointInfo* const best = checkpoint::find_best(found);
  std::string text = fmt::format("the model is in {}", last->path.string());
  if (best != nullptr)
    text += fmt::format("{} ({} {:.6g})",
                        best == last ? ", the best one"
                                     : fmt::format("; the best one is {}:best, {}", where,
                                                   best->path.filename().string()),
                        best->best->metric, best->best->value);
  if (signal != 0) {
    const bool replaces = arguments.fit.checkpoint.resume == checkpoint::Resume::never;
    return text +
           fmt::format(
               "\nto continue: the same command{}{}\n",
               arguments.chooses_directory ? " with --checkpoint-dir " + shell_word(where) : "",
               !replaces                            ? ""
               : arguments.fit.checkpoint.overwrite ? " without --resume never and --overwrite"
                                                    : " without --resume never");
  }
  // No suggestion to use the validation data, which selected the best checkpoint.
  return text + fmt::format("\nnext: lockstep evaluate --checkpoint {} --data {}\n",
                            shell_word(best == nullptr ? where : where + ":best"),
                            arguments.split.test > 0
                                ? shell_word(arguments.data.data) + " --split test"
                                : "DATA");
}

}  // namespace lockstep::inline v0::apps
