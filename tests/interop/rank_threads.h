// Ranks as threads of the test, each with its Workers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/job/session.h"
#include "lockstep/job/workers.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::interop {

/// Runs body(workers) on `ranks` concurrent ranks.
inline void run_ranks(int ranks, const std::function<void(job::Workers&)>& body) {
  job::Session session({.quiet = true});
  allreduce::run_members(allreduce::make_in_process_group(ranks),
                         [&](const allreduce::Communicator& member) {
                           job::Workers workers(session, member);
                           body(workers);
                         });
}

/// The error of each rank; "" for a rank that throws none.
inline std::vector<std::string> errors_of_ranks(int ranks,
                                                const std::function<void(job::Workers&)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](job::Workers& workers) {
    errors[static_cast<std::size_t>(workers.rank())] = allreduce::error_of([&] { body(workers); });
  });
  return errors;
}

}  // namespace lockstep::inline v0::interop
