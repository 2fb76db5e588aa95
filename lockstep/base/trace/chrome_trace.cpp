#include "lockstep/base/trace/chrome_trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/json/json.h"

namespace lockstep::inline v0::trace {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::int32_t kNumbersOfRank = 2 * static_cast<std::int32_t>(kMaxThreads);

double microseconds(std::int64_t nanoseconds) { return 1e-3 * static_cast<double>(nanoseconds); }

}  // namespace

std::int32_t process_number(const RankTrace& rank) { return (rank.rank + 1) * kNumbersOfRank; }
std::int32_t thread_number(const RankTrace& rank, std::size_t thread) {
  return process_number(rank) + 1 + static_cast<std::int32_t>(thread);
}

std::string process_name(const RankTrace& rank) {
  std::string name = fmt::format("rank {} on {}, process {}", rank.rank, rank.host, rank.process);
  if (rank.uncertainty() > 0)
    name += fmt::format(", clock within {:.1f} us", 1e-3 * static_cast<double>(rank.uncertainty()));
  return name;
}

void TextPieces::flush_full() {
  if (text_.size() >= kPieceBytes) flush();
}

void TextPieces::flush() {
  write_(text_);
  text_.clear();
}

void write_chrome_trace(std::span<const RankTrace> ranks, const WriteBytes& write) {
  TextPieces pieces(write);
  pieces.text() = R"({"displayTimeUnit":"ms","traceEvents":[)";
  bool is_first = true;
  const auto add = [&](const std::string& event) {
    pieces.text() += (is_first ? "\n" : ",\n") + event;
    is_first = false;
    pieces.flush_full();
  };
  const auto quoted_name = [](const std::string& name) { return dump_json(nlohmann::json(name)); };
  for (const RankTrace& rank : ranks) {
    const std::int32_t process = process_number(rank);
    add(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", process,
                    quoted_name(process_name(rank))));
    add(fmt::format(
        R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})",
        process));
    for (std::size_t i = 0; i < rank.threads.size(); ++i) {
      const ThreadEvents& thread = rank.threads[i];
      if (thread.events.empty()) continue;
      const std::int32_t number = thread_number(rank, i);
      add(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
                      process, number, quoted_name(thread.thread)));
      for (const Slice& slice : slices_of(rank, thread)) {
        std::string arguments = fmt::format(R"("step":{})", slice.step);
        if (slice.number >= 0) arguments += fmt::format(R"(,"number":{})", slice.number);
        if (slice.sequence > 0) arguments += fmt::format(R"(,"collective":{})", slice.sequence);
        add(fmt::format(
            R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
            quoted_name(slice.name), process, number, microseconds(slice.begin),
            microseconds(slice.end - slice.begin), arguments));
      }
    }
  }
  pieces.text() += "\n]}\n";
  pieces.flush();
}

}  // namespace lockstep::inline v0::trace
