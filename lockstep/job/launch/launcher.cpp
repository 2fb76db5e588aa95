#include "lockstep/job/launch/launcher.h"

#include <cstdlib>
#include <optional>

#include "lockstep/base/text.h"

namespace lockstep::inline v0::job {
namespace {

using enum allreduce::MpiKind;

std::optional<int> number(const Environment& environment, const char* name) {
  const char* text = environment(name);
  if (text == nullptr) return std::nullopt;
  const auto value = parse_number<int>(text);
  return value >= 0 ? value : std::nullopt;
}

}  // namespace

Launch detect_launch(const Environment& environment) {
  if (const auto ranks = number(environment, "OMPI_COMM_WORLD_SIZE"))
    return {true,   number(environment, "OMPI_COMM_WORLD_RANK").value_or(0),
            *ranks, "mpirun",
            true,   {open_mpi}};
  if (const auto rank = number(environment, "PMI_RANK"))
    return {true,
            *rank,
            number(environment, "PMI_SIZE").value_or(0),
            "a PMI launcher",
            true,
            {mpich, open_mpi}};
  if (const auto rank = number(environment, kLaunchedRankVariable))
    return {true, *rank, number(environment, "WORLD_SIZE").value_or(0), "lockstep launch", false};
  // A batch script has SLURM_PROCID too, but is not a rank: only srun sets the number of tasks of a
  // step.
  const auto tasks = number(environment, "SLURM_STEP_NUM_TASKS");
  if (const auto rank = number(environment, "PMIX_RANK"))
    return {true, *rank, tasks.value_or(0), "a PMIx launcher"};
  const auto process = number(environment, "SLURM_PROCID");
  if (process && tasks && *tasks > 1) return {true, *process, *tasks, "srun", false};
  return {};
}

Launch detect_launch() { return detect_launch(process_environment()); }

Environment process_environment() {
  return [](const char* name) { return std::getenv(name); };
}

}  // namespace lockstep::inline v0::job
