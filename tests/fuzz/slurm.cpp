// Slurm's lists of hosts and of numbers, and the task of a step with them.
#include <map>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/job/launch/task.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

template <typename Action>
void try_input(Action action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::input) throw;
  }
}

}  // namespace

void read_untrusted(Bytes bytes) {
  const std::string text(text_of(bytes));
  try_input([&] { job::expand_slurm_hosts(text); });
  try_input([&] { job::expand_slurm_counts(text); });
  const std::map<std::string_view, std::string> variables = {
      {"SLURM_PROCID", "0"},
      {"SLURM_STEP_NUM_TASKS", "4"},
      {"SLURM_STEP_NODELIST", text},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
  try_input([&] {
    job::find_task([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  });
}

}  // namespace lockstep::inline v0::fuzz
