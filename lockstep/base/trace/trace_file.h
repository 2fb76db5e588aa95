// Traces as files that viewers open.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "lockstep/base/trace/rank_trace.h"

namespace lockstep::trace {

/// Receives the bytes of a file, in order.
using WriteBytes = std::function<void(std::string_view bytes)>;

/// Writes a trace in the protobuf format of Perfetto, for https://ui.perfetto.dev: a process for
/// each rank, with a track for each thread. Format:
/// https://perfetto.dev/docs/reference/trace-packet-proto.
void write_perfetto_trace(std::span<const RankTrace> ranks, const WriteBytes& write);

/// Writes a trace in the JSON format of Chrome, for about:tracing, Perfetto and others.
/// Format: "Trace Event Format", Google.
void write_chrome_trace(std::span<const RankTrace> ranks, const WriteBytes& write);

/// Writes a trace in the format given by the name of `file`: Chrome's for *.json, else Perfetto's.
void write_trace(const std::filesystem::path& file, std::span<const RankTrace> ranks,
                 const WriteBytes& write);

}  // namespace lockstep::trace
