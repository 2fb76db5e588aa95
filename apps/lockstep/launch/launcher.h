// Starts the ranks of a job on this host, and by ssh on others, and waits for them.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/launch/ranks.h"

namespace lockstep::inline v0::apps::launch {

/// The name of this host by which others reach it, if it is in the list; empty: it is not.
bool is_this_host(const std::string& host);

/// Runs the job: the first of `parts` has rank 0. Returns the exit status of the rank that failed
/// first, or 0. The first SIGTERM, SIGINT or SIGHUP is forwarded to all ranks (SIGHUP as SIGTERM),
/// which may save a checkpoint; the next one, at least two seconds later, kills them. Ranks that
/// have not ended some seconds after another has failed are terminated. Throws Error: (input) if a
/// program is missing, (communication) if the system cannot start a process.
int run_job(const std::vector<HostPart>& parts);

/// Runs the ranks of one host, which standard input describes, for the launcher that started this
/// process by ssh: the line of a HostPart, then lines with signals to forward; its end ends them.
int run_part();

}  // namespace lockstep::inline v0::apps::launch
