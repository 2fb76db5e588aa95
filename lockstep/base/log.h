// Messages for people, on standard error. A logger is passed to whoever speaks; there is no global one.
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>

namespace lockstep {

using Logger = spdlog::logger;  ///< What messages go to; any thread may use it.

/// How messages are told.
struct LogOptions {
  bool quiet = false;  ///< warnings and errors only
  int rank = 0;        ///< shown before the message where the job has several ranks
  int ranks = 1;       ///< of the job; messages of one of several say which
};

/// A logger to standard error: `lockstep: message`, or `lockstep: [rank 2] message`.
std::shared_ptr<Logger> make_logger(const LogOptions& options = {});

/// A logger that drops everything, for tests and library users who want silence.
std::shared_ptr<Logger> make_silent_logger();

}  // namespace lockstep
