#include "lockstep/strategy/strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <utility>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/bound_fields.h"
#include "lockstep/job/agreement.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::inline v0::strategy {
namespace {

std::vector<device::Device> devices_of_one_rank(const job::Session& session,
                                                std::string_view strategy,
                                                std::vector<device::Device> devices) {
  if (session.size() > 1)
    throw Error(
        ErrorCategory::input, "strategy",
        fmt::format("expected a job of one rank for {} (use multi-worker-mirrored)", strategy),
        fmt::format("this job has {} ranks", session.size()));
  if (devices.empty())
    throw Error(ErrorCategory::input, "strategy",
                fmt::format("expected at least one device for {}", strategy), "got an empty list");
  return devices;
}

std::vector<device::Device> devices_of_each_rank(const job::Session& session,
                                                 std::string_view strategy,
                                                 std::vector<device::Device> devices) {
  job::check_tf_config(session);
  if (devices.empty())
    throw Error(ErrorCategory::input, "strategy",
                fmt::format("expected at least one device per rank for {}", strategy),
                "got an empty list");
  return devices;
}

}  // namespace

OneDeviceStrategy::OneDeviceStrategy(job::Session& session, device::Device device,
                                     const StrategyOptions& options)
    : Strategy(session, devices_of_one_rank(session, "one-device", {device}), options) {}

MirroredStrategy::MirroredStrategy(job::Session& session, std::vector<device::Device> devices,
                                   const StrategyOptions& options)
    : Strategy(session, devices_of_one_rank(session, "mirrored", std::move(devices)), options) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(job::Session& session,
                                                         std::vector<device::Device> devices,
                                                         const StrategyOptions& options)
    : Strategy(session, devices_of_each_rank(session, "multi-worker-mirrored", std::move(devices)),
               options) {}

LocalStepsStrategy::LocalStepsStrategy(job::Session& session, std::vector<device::Device> devices,
                                       const StrategyOptions& options)
    : Strategy(session, devices_of_each_rank(session, "local-steps", std::move(devices)), options) {
}

std::string LocalStepsStrategy::caveat(const TrainerOptions& options) const {
  return fmt::format(
      "each step is a round of {} local steps, after which {}: other numbers of replicas give "
      "another result",
      options.local.steps.value_or(LocalSteps::kStandard),
      options.local.outer == OuterStep{}
          ? "the replicas average parameters and optimizer"
          : fmt::format("the replicas average the optimizer and move towards the average of their "
                        "parameters ({})",
                        to_string(options.local.outer)));
}

TrainerOptions LocalStepsStrategy::adapted(TrainerOptions options) const {
  check_fields("trainer", fields_of(std::as_const(options.local)));
  options.local.steps = options.local.steps.value_or(LocalSteps::kStandard);
  const auto refuse = [](std::string_view where, std::string_view expected,
                         const std::string& value) {
    throw Error(ErrorCategory::input, where,
                fmt::format("expected {} with the strategy local-steps", expected),
                fmt::format("got {}", value));
  };
  if (options.accumulate != 1) refuse("accumulate", "1", fmt::format("{}", options.accumulate));
  if (loss_scaling_for(options.loss_scaling, options.compute.precision).kind !=
      LossScaling::Kind::none)
    refuse("loss-scale", "no loss scale, and float32 or bfloat16",
           fmt::format("{} in {}", to_string(options.loss_scaling),
                       to_string(options.compute.precision)));
  const OuterStep& outer = options.local.outer;
  if (!(outer.learning_rate > 0 && std::isfinite(outer.learning_rate) && outer.momentum >= 0 &&
        outer.momentum < 1))
    refuse("outer-step", "a rate above 0 and a momentum from 0 to below 1", to_string(outer));
  if (options.normalization.kind != NormalizationScope::Kind::local)
    refuse("bn", "local", to_string(options.normalization));
  return options;
}

namespace {

using allreduce::Route;

std::string_view choose(const job::Session& session, std::size_t devices) {
  if (session.size() > 1) return "multi-worker-mirrored";
  return devices > 1 ? "mirrored" : "one-device";
}

void check_route(const job::Session& session, const std::vector<device::Device>& devices,
                 Route route) {
  allreduce::require_devices(route, devices);
  if (session.size() > 1 && !allreduce::info_of(route).connects_ranks())
    throw Error(
        ErrorCategory::input, "--allreduce",
        fmt::format("expected all replicas in one process for {} (use auto)", to_string(route)),
        fmt::format("this job has {} ranks", session.size()));
  if (!session.is_connected()) allreduce::require_no_ranks(route);
}

}  // namespace

std::string parse_strategy(std::string_view where, const std::string& name) {
  if (std::ranges::find(kStrategyNames, name) != kStrategyNames.end()) return name;
  struct Other {
    std::string_view name;
    std::string_view instead;
  };
  static constexpr Other kOthers[] = {
      {"centralstorage",
       "mirrored, which has the variables of central storage on every replica, with the same "
       "result"},
      {"diloco", "local-steps with --outer-step nesterov"},
      {"fedavg", "local-steps"},
      {"localsgd", "local-steps"},
      {"parameterserver", "multi-worker-mirrored, whose ranks have the variables of the servers"},
      {"tpu",
       "mirrored for the processors or GPUs of one host, multi-worker-mirrored for those of "
       "several; TPUs are not supported"}};
  std::string letters;  // letters of TPUStrategy, central_storage, central-storage
  for (const char c : name)
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Other& other : kOthers)
    if (letters == other.name || letters == fmt::format("{}strategy", other.name))
      throw Error(ErrorCategory::input, where, fmt::format("expected {}", other.instead),
                  fmt::format("got \"{}\"", name));
  refuse_name(where, name, kStrategyNames);
}

std::unique_ptr<Strategy> make_strategy(job::Session& session, std::string_view name,
                                        std::vector<device::Device> devices,
                                        const StrategyOptions& options) {
  check_route(session, devices, options.route);
  if (!(options.stall_timeout >= 0))
    throw Error(ErrorCategory::input, "--stall-timeout",
                "expected a number of seconds, or 0 for no timeout",
                fmt::format("got {}", options.stall_timeout));
  const std::string_view chosen = name == "auto" ? choose(session, devices.size()) : name;
  if (chosen == "multi-worker-mirrored")
    return std::make_unique<MultiWorkerMirroredStrategy>(session, std::move(devices), options);
  if (chosen == "local-steps")
    return std::make_unique<LocalStepsStrategy>(session, std::move(devices), options);
  job::check_tf_config(session);
  if (chosen == "mirrored")
    return std::make_unique<MirroredStrategy>(session, std::move(devices), options);
  if (chosen != "one-device") (void)parse_strategy("strategy", std::string(name));
  if (devices.size() != 1)
    throw Error(ErrorCategory::input, "strategy",
                "expected exactly one device for one-device (use mirrored for several)",
                fmt::format("got {} devices", devices.size()));
  return std::make_unique<OneDeviceStrategy>(session, devices.front(), options);
}

data::IndexExchange index_exchange(const job::Session& session) {
  return {session.size(), session.rank(),
          [&session](const std::string& mine) { return session.all_gather(mine); }, session.node()};
}

data::IndexExchange index_exchange(const Strategy& strategy) {
  return {strategy.ranks().size(), strategy.ranks().rank(),
          [all = job::Agreement(strategy.ranks())](const std::string& mine) {
            return all.gather(mine);
          },
          strategy.session().node()};
}

}  // namespace lockstep::inline v0::strategy
