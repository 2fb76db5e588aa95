// Which steps of a job are traced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::inline v0::job {

/// A trace of the threads of all ranks, on one clock (docs/observe.md).
struct TraceOptions {
  /// Output file; empty: no trace. Chrome's format if its name ends with .json, else Perfetto's.
  std::filesystem::path file = {};
  std::int64_t first_step = 1;  ///< first traced step, from 1
  /// Last traced step; 0: until the training ends or the trace is full.
  std::int64_t last_step = 0;
};
/// Parses "FILE" or "FILE:steps=100-120"; either number may be omitted. Throws Error (input).
TraceOptions parse_trace(std::string_view text);
std::string to_string(const TraceOptions& options);  ///< as parse_trace() reads it

}  // namespace lockstep::inline v0::job
