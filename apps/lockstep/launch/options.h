#pragma once

#include <chrono>
#include <string>

#include "apps/lockstep/launch/job_plan.h"
#include "lockstep/net/token.h"

namespace lockstep::apps::launch {

/// What people say to `lockstep launch`.
struct LaunchOptions {
  MpirunOptions mpirun = {};
  std::string job = {};        ///< in place of what the environment says
  std::string host = {};       ///< of this task, in place of the system's name
  double timeout = 60;         ///< seconds for all tasks to come, and for mpirun to reach their hosts
  double stall_timeout = 120;  ///< seconds after which a host that does not answer counts as lost
  net::JobSecret secret = net::JobSecret::none();  ///< that all tasks of the job know

  std::chrono::seconds stall_limit() const {
    return std::chrono::ceil<std::chrono::seconds>(std::chrono::duration<double>(stall_timeout));
  }
  std::chrono::steady_clock::duration patience() const {
    return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(timeout));
  }
};

/// How a task is told to leave.
struct Ending {
  int status = 0;
  std::string message = {};  ///< an error's; empty where another task says it, or there is none

  bool operator==(const Ending&) const = default;
};

std::string to_text(const Ending& ending);
/// Throws Error (communication) for what is none.
Ending parse_ending(const std::string& text);

}  // namespace lockstep::apps::launch
