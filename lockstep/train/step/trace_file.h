// Traces as files that viewers open.
#pragma once

#include <filesystem>
#include <span>

#include "lockstep/base/trace/chrome_trace.h"

namespace lockstep::inline v0::train {

/// Writes a trace in the protobuf format of Perfetto, for https://ui.perfetto.dev: a process for
/// each rank, with a track for each thread. Format:
/// https://perfetto.dev/docs/reference/trace-packet-proto.
void write_perfetto_trace(std::span<const trace::RankTrace> ranks, const trace::WriteBytes& write);

/// How to write a trace in the format given by the name of `file`: Chrome's for *.json, else
/// Perfetto's.
trace::WriteTrace trace_writer(const std::filesystem::path& file);

}  // namespace lockstep::inline v0::train
