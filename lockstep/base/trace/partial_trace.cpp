#include "lockstep/base/trace/partial_trace.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"

namespace lockstep::inline v0::trace {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPartialLimit(2);

struct PartialTrace {
  std::mutex mutex;
  fs::path file;
  TraceSnapshot snapshot;
  WriteTrace write;
  std::shared_future<fs::path> written;
};

/// Never destroyed: the watchdog may write until the process has ended.
PartialTrace& partial_trace() {
  static auto* const one = new PartialTrace;
  return *one;
}

/// Returns the file; empty if it could not be written: the failure itself is what is reported.
fs::path write_part(const fs::path& path, const RankTrace& part, const WriteTrace& write) {
  try {
    AtomicFile file(path, Durability::cached, ErrorCategory::output, Existing::regular_only);
    write(std::span(&part, 1), [&](std::string_view bytes) { file.write(bytes); });
    file.commit();
    return path;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

fs::path partial_trace_file(const fs::path& file, int rank, int ranks) {
  if (ranks == 1) return file;
  fs::path name = file.stem();
  name += fmt::format(".rank-{}", rank);
  name += file.extension();
  return file.parent_path() / name;
}

void set_partial_trace(fs::path file, TraceSnapshot snapshot, WriteTrace write) {
  PartialTrace& one = partial_trace();
  const std::lock_guard lock(one.mutex);
  one.file = std::move(file);
  one.snapshot = std::move(snapshot);
  one.write = std::move(write);
  if (one.snapshot) one.written = {};
}

void start_partial_trace() noexcept {
  try {
    PartialTrace& one = partial_trace();
    const std::lock_guard lock(one.mutex);
    if (!one.snapshot) return;
    std::optional<RankTrace> part = std::exchange(one.snapshot, nullptr)();
    if (!part) return;
    // The thread may outlive its caller, on a disk that does not respond.
    const auto written = std::make_shared<std::promise<fs::path>>();
    one.written = written->get_future().share();
    std::thread([written, file = one.file, part = *std::move(part), write = one.write] {
      written->set_value(write_part(file, part, write));
    }).detach();
  } catch (const std::exception&) {
    return;  // no memory, or no thread
  }
}

fs::path finish_partial_trace() noexcept {
  try {
    std::shared_future<fs::path> written;
    {
      const std::lock_guard lock(partial_trace().mutex);
      written = partial_trace().written;
    }
    if (!written.valid()) return {};
    return written.wait_for(kPartialLimit) == std::future_status::ready ? written.get()
                                                                        : fs::path();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace lockstep::inline v0::trace
