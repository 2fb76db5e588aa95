// The output of `lockstep plan`: a table for users, or a JSON object for scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/plan/scaling_plan.h"

namespace lockstep::inline v0::apps {

/// A plan and its inputs.
struct PlanReport {
  Calibration calibration;
  Hardware hardware;
  ScalingOptions options;
  ScalingPlan plan;
};

/// A table of at most 80 columns, the conclusions, and the assumptions.
std::string plan_text(const PlanReport& report);

/// {"event": "plan", …, "rows": [{"replicas", "step_seconds", "breakdown": {…}, …}], …,
/// "assumptions"}; all times in seconds.
nlohmann::ordered_json plan_json(const PlanReport& report);

/// The numbers of "1,2,4-8", ascending. Throws Error (input) for anything else, and for numbers
/// that are not from 1 to 4,096.
std::vector<int> parse_replica_counts(const std::string& list);

}  // namespace lockstep::inline v0::apps
