// The default directory of `lockstep train`, and the last lines of its output.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/lockstep/train/train_arguments.h"
#include "lockstep/allreduce/communicator.h"

namespace lockstep::inline v0::apps {

/// The name of the network that --model selects, without path, options and extension: "mlp" of
/// "mlp:100,50", "net" of "nets/net.json".
std::string network_name(const std::string& model);

/// A new directory runs/NETWORK-N in the working directory, with the next free N. The chief creates
/// it. The destructor removes it if nothing was saved in it.
class RunDirectory {
 public:
  /// `model`: as in --model. Throws Error (checkpoint) if it cannot be created. Collective.
  RunDirectory(const allreduce::Communicator& ranks, const std::string& model);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  ~RunDirectory();

  const std::filesystem::path& path() const { return path_; }  ///< equal on all ranks

 private:
  std::filesystem::path path_;
  bool is_chief_;
};

/// A sentence about the newest directory runs/NETWORK-N of an unfinished training with the same
/// `options` (an object of kOptionsKey); empty if there is none.
std::string unfinished_run(const std::string& model, const nlohmann::json& options);

/// The last lines of a training with checkpoints in `directory` (empty: not saved): its newest and
/// best checkpoint, and the next command. `signal`: the signal that stopped it; 0: none.
std::string ending_text(const std::filesystem::path& directory, const TrainArguments& arguments,
                        int signal);

}  // namespace lockstep::inline v0::apps
