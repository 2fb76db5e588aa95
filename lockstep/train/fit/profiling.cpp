#include "lockstep/train/fit/profiling.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/job/agreement.h"
#include "lockstep/model/compiled/device_speed.h"

namespace lockstep::inline v0::train {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const model::ProfiledPiece& piece) {
  Json line{{"name", piece.name},
            {"ms", piece.milliseconds},
            {"bytes", piece.work.bytes},
            {"flop", piece.work.flop},
            {"floor_ms", piece.floor_milliseconds},
            {"share", piece.share()}};
  if (!piece.work.algorithm.empty()) line["algorithm"] = std::string(piece.work.algorithm);
  return line;
}

/// Replaces invalid UTF-8, so that a name cannot make the file fail.
std::string line_of(const Json& object) { return dump_json(object) + "\n"; }

}  // namespace

Profiling::Profiling(strategy::LocalReplicas& replicas, std::filesystem::path path)
    : replicas_(replicas), path_(std::move(path)) {}

Profiling::~Profiling() {
  if (profile_) replicas_[0].set_profile(nullptr);
}

void Profiling::begin(const Position& position) {
  if (path_.empty()) return;
  const strategy::Strategy& strategy = replicas_.strategy();
  if (const std::int64_t steps = position.last_step - position.step;
      steps <= model::StepProfile::kWarmUpSteps)
    throw Error(ErrorCategory::input, "profile",
                fmt::format("expected more steps than the {} that are not measured",
                            model::StepProfile::kWarmUpSteps),
                fmt::format("got {}", steps));
  job::Agreement(strategy.ranks())
      .all_or_none(ErrorCategory::data, path_.string(), "expected to write the file", [&] {
        if (strategy.is_chief()) {
          remove_abandoned_temporaries(path_.parent_path(), path_.filename().native());
          file_.emplace(path_);
        }
        return std::string();
      });
  if (!strategy.is_chief()) return;
  profile_.emplace(replicas_[0].model().backend().stream());
  replicas_[0].set_profile(&*profile_);
}

std::optional<model::Profile> Profiling::end() {
  if (!profile_) return std::nullopt;
  replicas_[0].set_profile(nullptr);
  if (profile_->steps() > 0)
    return profile_->result(model::measure_speed(replicas_[0].model().backend()));
  replicas_.strategy().session().logger()->warn(fmt::format(
      "[{}] no profile is written: the training ended within its first {} steps, which are not "
      "measured",
      path_.string(), model::StepProfile::kWarmUpSteps));
  return std::nullopt;
}

void Profiling::write(const model::Profile& profile, bool fails_anyway) {
  std::string lines;
  for (const model::ProfiledPiece& piece : profile.pieces) lines += line_of(to_json(piece));
  Json step = to_json(profile.step);
  step["steps"] = profile.steps;
  step["samples"] = profile.samples;
  step["bytes_per_second"] = profile.speed.bytes_per_second;
  step["flop_per_second"] = profile.speed.flop_per_second;
  try {
    file_->write(lines + line_of(step));
    file_->commit();
  } catch (const Error& error) {
    if (!fails_anyway) throw;
    replicas_.strategy().session().logger()->warn(error.what());
  }
}

}  // namespace lockstep::inline v0::train
