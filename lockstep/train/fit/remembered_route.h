// The route between ranks of an earlier run, stored in its checkpoints.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "lockstep/allreduce/groups/route.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::train {

/// Stores the route of a run in the configuration of its checkpoints; does nothing for
/// Route::automatic.
void remember_route(nlohmann::json& configuration, allreduce::Route route);

/// Returns the route in the newest complete checkpoint of `directory`, read by the chief; nullopt
/// if there is none. The same on all ranks. Collective.
std::optional<allreduce::Route> remembered_route(const job::Session& session,
                                                 const std::filesystem::path& directory);

}  // namespace lockstep::inline v0::train
