// TF_CONFIG, and the task that it describes.
#include <fmt/format.h>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/job/launch/cluster.h"
#include "lockstep/job/launch/task.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  const std::string text(text_of(bytes));
  try {
    const auto task = job::find_task([&](const char* name) {
      return std::string_view(name) == "TF_CONFIG" ? text.c_str() : nullptr;
    });
    if (task) LOCKSTEP_CHECK_OP(task->rank, <, task->ranks);
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::input) throw;
  }
}

}  // namespace lockstep::inline v0::fuzz
