// The route between ranks that a training took before, from its last checkpoint.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "lockstep/allreduce/route.h"
#include "lockstep/job/session.h"

namespace lockstep::strategy {

/// Notes the route of a run in the configuration that its checkpoints keep; nothing for Route::automatic.
void remember_route(nlohmann::json& configuration, allreduce::Route route);

/// What remember_route noted in the newest complete checkpoint of `directory`, as the chief sees it; nothing where
/// there is none. The same on all ranks. Collective.
std::optional<allreduce::Route> remembered_route(const job::Session& session, const std::filesystem::path& directory);

}  // namespace lockstep::strategy
