// What a task tells of itself when it comes to the meeting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/job/task.h"

namespace lockstep::apps::launch {

struct Arrival {
  std::string job = {};  ///< that it belongs to
  int rank = 0;
  int ranks = 1;                            ///< of the job, as far as this task knows
  int local_ranks = 0;                      ///< on its host, as far as it knows; 0: not at all
  std::string host = {};                    ///< what it is called
  std::string place = {};                   ///< the same text for tasks that share a host, and for no others
  std::vector<int> processors = {};         ///< that it may run on
  std::string gpus = {};                    ///< CUDA_VISIBLE_DEVICES
  std::string interface = {};               ///< by which it came
  std::string towards = {};                 ///< the first task's interface to it, which that one finds out
  std::vector<std::string> addresses = {};  ///< of its host
  std::uint16_t port = 0;                   ///< where its host can be tried to be reached

  bool operator==(const Arrival&) const = default;
};

std::string to_text(const Arrival& arrival);
/// Checks every field: a host's name is one (fields.h), addresses are numeric, …. Throws Error (communication).
Arrival parse_arrival(const std::string& text);

/// This process. `host`: what its host is called, in place of the system's name; empty: that. Throws Error (input)
/// where the host has no name that mpirun takes.
Arrival describe_this_task(const job::Task& task, const std::string& job, const std::string& host);

}  // namespace lockstep::apps::launch
