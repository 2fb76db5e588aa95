// Human-readable messages on standard error. Loggers are passed explicitly; there is no global
// logger. Code that writes messages includes <spdlog/logger.h> as well, and passes it text that
// fmt::format has made: with arguments of its own, spdlog compiles all of fmt in every such source.
#pragma once

#include <spdlog/fwd.h>

#include <memory>
#include <string>

namespace lockstep::inline v0 {

using Logger = spdlog::logger;  ///< thread-safe

/// Options of make_logger().
struct LogOptions {
  bool quiet = false;    ///< warnings and errors only
  bool verbose = false;  ///< details too
  int rank = 0;          ///< printed before the message if the job has several ranks
  int ranks = 1;         ///< number of ranks of the job
};

/// A logger that writes to standard error: `lockstep: message`, or `lockstep: [rank 2] message`. A
/// warning is `lockstep: warning: message`. Each message is one line, as printable() shows it,
/// which on a terminal is wrapped between words.
std::shared_ptr<Logger> make_logger(const LogOptions& options = {});

/// A logger that drops all messages, for tests and for library users that want no output.
std::shared_ptr<Logger> make_silent_logger();

}  // namespace lockstep::inline v0
