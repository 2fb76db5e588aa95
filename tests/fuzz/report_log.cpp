// The log of a training, and the HTML report about it.
#include <vector>

#include "apps/lockstep/report/page.h"
#include "apps/lockstep/report/run_log.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  const MemoryFile file(bytes);
  const std::vector<apps::report::RunLog> run = apps::report::read_runs(file.path());
  apps::report::report_page(run, {});
  const std::vector<apps::report::RunLog> runs = {run.front(), run.front()};
  apps::report::report_page(runs, {.goal = {}, .prices = {1}});
}

}  // namespace lockstep::inline v0::fuzz
