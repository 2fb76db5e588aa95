// What operators set in the environment for programs that they cannot change.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lockstep/base/fields/fields.h"
#include "lockstep/job/launch/launcher.h"
#include "lockstep/job/launch/transport_choice.h"
#include "lockstep/job/trace_options.h"

namespace lockstep::inline v0::job {

/// Each field is a variable: `stall_timeout` is LOCKSTEP_STALL_TIMEOUT. Those of rank 0 apply to
/// all ranks, except that each has its own of the start, and override what the program sets.
struct OperatorSettings {
  std::optional<double> stall_timeout = {};                ///< SessionOptions, WorkersOptions
  std::optional<double> start_timeout = {};                ///< SessionOptions
  TransportChoice transport = TransportChoice::automatic;  ///< SessionOptions
  std::string rendezvous = {};                    ///< "HOST:PORT", in place of that of the task
  std::string allreduce = {};                     ///< WorkersOptions::route; empty: not set
  std::optional<std::int64_t> bucket_bytes = {};  ///< ReducerOptions
  TraceOptions trace = {};                        ///< for a loop with such a wrapper

  /// Reads `environment`. Throws Error (input) for an invalid value.
  static OperatorSettings of(const Environment& environment);
  /// Lines "LOCKSTEP_NAME=value" of the fields that are set, for from_lines().
  std::string lines() const;
  static OperatorSettings from_lines(std::string_view lines);  ///< what lines() returned
  /// The variables that are set, and that only loops with a wrapper use: "LOCKSTEP_TRACE".
  std::vector<std::string> of_wrapped_loops() const;
};

/// Warnings about variables of this process that are similar to those of OperatorSettings:
/// "LOCKSTEP_STALL_TIMOUT is not used (did you mean LOCKSTEP_STALL_TIMEOUT?)".
std::vector<std::string> similar_variables();

}  // namespace lockstep::inline v0::job

namespace lockstep::inline v0 {

/// The settings of operators.
template <>
struct Fields<job::OperatorSettings> {
  using Options = job::OperatorSettings;  ///< the struct
  static std::vector<std::string> print_trace(const Options& options);
  static void parse_trace(Options& options, std::string_view name,
                          std::span<const std::string> values);
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::stall_timeout,
            {"stall_timeout", {}, "Seconds without progress until the watchdog ends the job"},
            {{.min = 0, .max = 1e9}}},
      Field{&Options::start_timeout,
            {"start_timeout", {}, "Seconds that the start of the job may take"},
            {{.min = 0, .max = 1e9}}},
      Field{&Options::transport,
            {"transport", {}, "What carries messages between ranks: auto, mpi or tcp"}},
      Field{&Options::rendezvous,
            {"rendezvous", {}, "HOST:PORT at which rank 0 listens if ranks connect themselves"}},
      Field{&Options::allreduce, {"allreduce", {}, "Route of the all-reduce between ranks"}},
      Field{&Options::bucket_bytes,
            {"bucket_bytes", {}, "Minimum size of the gradients that one call reduces"},
            {{.min = 1, .max = std::int64_t{1} << 40}}},
      TextField<Options>{{"trace", {}, "File for a trace of the steps"}, parse_trace, print_trace}};
};

}  // namespace lockstep::inline v0
