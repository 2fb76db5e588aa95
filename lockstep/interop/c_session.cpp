#include "lockstep/interop/c_session.h"

#include <fmt/format.h>

#include "lockstep/allreduce/letters/letter_thread.h"
#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/job/failure.h"

namespace lockstep::inline v0::interop {

std::string& last_error() {
  thread_local std::string error;
  return error;
}

int report_current_exception() {
  const job::Failure failure = job::describe_current_exception();
  last_error() = failure.message;
  return failure.exit_status;
}

void refuse_size(std::size_t size, std::size_t known, const char* function) {
  throw Error(ErrorCategory::input, function,
              fmt::format("expected options with a size of at most {} bytes, that of this version "
                          "of Lockstep: start from the defaults",
                          known),
              fmt::format("got {}", size));
}

void require(bool given, const char* function, const std::string& what) {
  if (!given) throw Error(ErrorCategory::input, function, what, "got NULL");
}

void require_root(int root, const job::Workers& workers, const char* function) {
  if (root < 0 || root >= workers.size())
    throw Error(ErrorCategory::input, function,
                fmt::format("expected a root from 0 to {}", workers.size() - 1),
                fmt::format("got {}", root));
}

}  // namespace lockstep::inline v0::interop

using lockstep::interop::guarded;
using lockstep::interop::known_options;
using lockstep::interop::last_error;
using lockstep::interop::require;
namespace allreduce = lockstep::allreduce;
namespace job = lockstep::job;

const char* lockstep_version(void) { return LOCKSTEP_VERSION; }

const char* lockstep_last_error(void) { return last_error().c_str(); }

lockstep_session_options lockstep_default_session_options(void) {
  return {sizeof(lockstep_session_options),
          job::WorkersOptions{}.stall_timeout,
          "auto",
          0,
          -1,
          -1,
          0,
          0,
          nullptr,
          -1,
          nullptr};
}

int lockstep_init(const lockstep_session_options* options, lockstep_session** session) {
  return guarded([&] {
    require(session != nullptr, "lockstep_init", "expected a pointer for the session");
    const lockstep_session_options given =
        known_options(options, lockstep_default_session_options(), "lockstep_init");
    require(given.all_reduce != nullptr, "lockstep_init", "expected the name of an all-reduce");
    job::SessionOptions wanted{.quiet = given.quiet != 0,
                               .stall_timeout = given.stall_timeout,
                               .workers = {.route = allreduce::parse_route(given.all_reduce),
                                           .stall_timeout = given.stall_timeout}};
    if (given.start_timeout >= 0) wanted.start_timeout = given.start_timeout;
    if (given.communicator != -1) wanted.communicator = given.communicator;
    if (given.world_size > 0) {
      require(given.address != nullptr, "lockstep_init", "expected an address of rank 0");
      wanted.job = {.rank = given.rank,
                    .ranks = given.world_size,
                    .address = given.address,
                    .listener = given.listener,
                    .secret = given.secret != nullptr ? given.secret : ""};
    }
    auto made = std::make_unique<job::Session>(wanted);
    // Now, because ranks of several sessions may use them in different orders.
    if (wanted.job) made->workers();
    *session = new lockstep_session(std::move(made));
  });
}

void lockstep_still_at_work(lockstep_session* session) {
  if (session != nullptr) session->session().activity().tick();
}

void lockstep_abort(lockstep_session* session) {
  if (session == nullptr) return;
  const std::string reason = fmt::format("rank {} called lockstep_abort", session->rank());
  session->workers().abort(reason);
  if (const auto letters = session->session().letters())
    letters->fail({"lockstep_abort", "expected all ranks to continue", reason});
}

void lockstep_finalize(lockstep_session* session) { delete session; }

int lockstep_rank(const lockstep_session* session) { return session ? session->rank() : -1; }
int lockstep_world_size(const lockstep_session* session) { return session ? session->size() : -1; }
int lockstep_local_rank(const lockstep_session* session) {
  return session ? session->session().local_rank() : -1;
}
int lockstep_local_size(const lockstep_session* session) {
  return session ? session->session().local_size() : -1;
}
int lockstep_node(const lockstep_session* session) {
  return session ? session->session().node() : -1;
}

int lockstep_group_create(lockstep_session* session, const int* ranks, size_t count,
                          lockstep_session** group) {
  return guarded([&] {
    require(session != nullptr && (ranks != nullptr || count == 0) && group != nullptr,
            "lockstep_group_create", "expected a session, ranks and a pointer for the group");
    auto workers = session->workers().make_group({ranks, count});
    *group = workers ? new lockstep_session(std::move(workers)) : nullptr;
  });
}
