// Traces as files of Chrome's JSON format, and what files of any format have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/trace/rank_trace.h"

namespace lockstep::inline v0::trace {

/// Receives the bytes of a file, in order.
using WriteBytes = std::function<void(std::string_view bytes)>;
/// Writes a trace as a file of some format.
using WriteTrace = std::function<void(std::span<const RankTrace> ranks, const WriteBytes& write)>;

/// Writes a trace in the JSON format of Chrome, for about:tracing, Perfetto and others.
/// Format: "Trace Event Format", Google.
void write_chrome_trace(std::span<const RankTrace> ranks, const WriteBytes& write);

/// The number of a process in a file. Viewers require numbers of processes and threads that are
/// unique among ranks, and those of the system may be equal on different hosts.
std::int32_t process_number(const RankTrace& rank);
/// The number of thread `thread` of a process in a file, see process_number().
std::int32_t thread_number(const RankTrace& rank, std::size_t thread);
/// The name of a process in a file: "rank 1 on host, process 77, clock within 0.3 us".
std::string process_name(const RankTrace& rank);

/// Passes the text of a file on in pieces of about a megabyte.
class TextPieces {
 public:
  explicit TextPieces(const WriteBytes& write) : write_(write) {}  ///< `write` outlives it
  std::string& text() { return text_; }                            ///< what is not yet passed on
  void flush_full();                                               ///< flush() for a whole piece
  void flush();                                                    ///< passes the text on

 private:
  const WriteBytes& write_;
  std::string text_;
};

}  // namespace lockstep::inline v0::trace
