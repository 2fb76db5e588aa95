#include "lockstep/train/fit/remembered_route.h"

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep::inline v0::train {
namespace {

constexpr const char* kKey = "allreduce_route";

// Returns the stored route, or empty. Restoring reports an unreadable checkpoint later.
std::string read_route(const std::filesystem::path& directory) {
  try {
    for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(directory)) {
      if (!info.complete()) continue;
      const std::filesystem::path file = info.path / checkpoint::kStateFile;
      return checkpoint::parse_training_state(checkpoint::read_small_file(file), file.string())
          .configuration->value(kKey, std::string());
    }
  } catch (const Error&) {
  } catch (const nlohmann::json::exception&) {  // a route that is not a string
  }
  return "";
}

}  // namespace

void remember_route(nlohmann::json& configuration, allreduce::Route route) {
  if (route != allreduce::Route::automatic) configuration[kKey] = to_string(route);
}

std::optional<allreduce::Route> remembered_route(const job::Session& session,
                                                 const std::filesystem::path& directory) {
  if (directory.empty()) return std::nullopt;
  const std::string name =
      session.all_gather(session.is_chief() ? read_route(directory) : std::string()).front();
  if (name.empty()) return std::nullopt;
  return allreduce::parse_route(name);
}

}  // namespace lockstep::inline v0::train
