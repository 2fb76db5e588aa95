#pragma once

#include <chrono>
#include <string>

#include "apps/lockstep/launch/job_plan.h"
#include "lockstep/net/token.h"

namespace lockstep::apps::launch {

/// Options of `lockstep launch`.
struct LaunchOptions {
  MpirunOptions mpirun = {};
  std::string job = {};        ///< name of the job; empty: from the environment
  std::string host = {};       ///< name of this task's host; empty: the system's host name
  double timeout = 60;         ///< seconds for all tasks to connect, and for mpirun to reach their hosts
  double stall_timeout = 120;  ///< seconds without a response after which a host is considered lost
  net::JobSecret secret = net::JobSecret::none();  ///< shared by all tasks of the job

  std::chrono::seconds stall_limit() const {
    return std::chrono::ceil<std::chrono::seconds>(std::chrono::duration<double>(stall_timeout));
  }
  std::chrono::steady_clock::duration patience() const {
    return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(timeout));
  }
};

/// How a task is to exit.
struct Ending {
  int status = 0;
  std::string message = {};  ///< error message; empty if there is none, or another task prints it

  bool operator==(const Ending&) const = default;
};

std::string to_text(const Ending& ending);
/// Throws Error (communication) for invalid text.
Ending parse_ending(const std::string& text);

}  // namespace lockstep::apps::launch
