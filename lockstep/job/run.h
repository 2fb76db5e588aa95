// The main function of a program whose processes are the ranks of a job.
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include "lockstep/job/session.h"

namespace lockstep::inline v0::job {

/// Prints a failure from before the session as one line, in which ranks other than 0 name
/// themselves. Almost always all ranks have the same failure, and rank 0 prints it.
void print_before_session(const Failure& failure);

/// Implements run() for a body that returns a status.
int run_with_status(int argc, char** argv, const SessionOptions& options,
                    const std::function<int(Session&)>& body);

/// Runs `body(session)` and returns the exit status of the program: the status that `body` returns,
/// or 0 if it returns nothing. An exception of the body or of the constructor of Session is printed
/// as one line and returns the status of its category (lockstep/base/error.h). To be called in
/// main:
///
///     int main(int argc, char** argv) {
///       return lockstep::run(argc, argv, [&](lockstep::Session& session) { … });
///     }
template <std::invocable<Session&> Body>
int run(int argc, char** argv, const SessionOptions& options, Body&& body) {
  return run_with_status(argc, argv, options, [&](Session& session) -> int {
    if constexpr (std::is_void_v<std::invoke_result_t<Body&, Session&>>)
      return body(session), 0;
    else
      return body(session);
  });
}
/// run() with the default options.
template <std::invocable<Session&> Body>
int run(int argc, char** argv, Body&& body) {
  return run(argc, argv, SessionOptions{}, std::forward<Body>(body));
}

}  // namespace lockstep::inline v0::job
