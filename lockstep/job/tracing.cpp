#include "lockstep/job/tracing.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/base/trace/partial_trace.h"
#include "lockstep/job/agreement.h"
#include "lockstep/job/clock_offset.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::job {
namespace {

// Rank 0 holds the events of all ranks: 40 bytes each.
constexpr std::size_t kMaxEventsOfRank = 1'000'000;
constexpr std::size_t kMaxEventsOfJob = 16'000'000;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// Returns the texts of all ranks on rank 0, nothing on the others. Every rank receives all
/// gathered bytes, so the texts are gathered in pieces. Collective.
std::vector<std::string> gather_on_chief(const allreduce::Communicator& ranks,
                                         const std::string& mine) {
  const Agreement agreement(ranks);
  std::vector<std::string> texts;
  for (std::size_t begin = 0;; begin += kPieceBytes) {
    const std::vector<std::string> pieces =
        agreement.gather(mine.substr(std::min(begin, mine.size()), kPieceBytes));
    if (std::ranges::all_of(pieces, &std::string::empty)) return texts;
    if (ranks.rank() != 0) continue;
    texts.resize(pieces.size());
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) texts[rank] += pieces[rank];
  }
}

}  // namespace

Tracing::Tracing(const Session& session, allreduce::Communicator ranks, bool is_on_gpus,
                 TraceOptions options, trace::WriteTrace write)
    : session_(session),
      ranks_(std::move(ranks)),
      is_on_gpus_(is_on_gpus),
      options_(std::move(options)),
      write_(std::move(write)) {}

Tracing::~Tracing() {
  if (!options_.file.empty()) trace::set_partial_trace({}, nullptr, nullptr);
}

void Tracing::begin() {
  is_done_ = options_.file.empty();
  if (is_done_) return;
  limit_ = std::min(kMaxEventsOfRank, kMaxEventsOfJob / static_cast<std::size_t>(ranks_.size()));
  Agreement(ranks_).all_or_none(
      ErrorCategory::output, options_.file.string(), "expected to write the file", [&] {
        if (is_chief()) {
          remove_abandoned_temporaries(options_.file.parent_path(),
                                       options_.file.filename().native());
          file_.emplace(options_.file, Durability::cached, ErrorCategory::output);
        }
        return std::string();
      });
}

void Tracing::before_step(std::int64_t step) {
  if (is_done_ || !clock_.empty() || step < options_.first_step) return;
  if (options_.last_step > 0 && step > options_.last_step) return;
  clock_.push_back(measure_clock_offset(session_));
  collector_.emplace();
  std::error_code missing;
  if (const auto status = std::filesystem::status(options_.file, missing);
      !std::filesystem::exists(status) || std::filesystem::is_regular_file(status))
    trace::set_partial_trace(
        trace::partial_trace_file(options_.file, ranks_.rank(), ranks_.size()),
        [this] { return extract_trace(); }, write_);
}

double Tracing::after_step(std::int64_t step) {
  if (is_done_ || clock_.empty()) return 0;
  if (full_at_step_ == 0) {
    const std::lock_guard lock(mutex_);
    if (!collector_) return 0;  // the process fails
    ++traced_;
    collector_->collect();
    if (collector_->size() >= limit_) full_at_step_ = step;
  }
  if (step != options_.last_step) return 0;
  const auto start = std::chrono::steady_clock::now();
  finish();
  return seconds_since(start);
}

void Tracing::finish() {
  if (std::exchange(is_done_, true)) return;
  if (clock_.empty()) {
    if (is_chief())
      session_.logger()->warn(
          fmt::format("[{}] no trace is written: this run had none of the steps from {} on",
                      options_.file.string(), options_.first_step));
    return;
  }
  const trace::ClockOffset at_end = measure_clock_offset(session_);
  std::string mine;
  {
    const std::lock_guard lock(mutex_);
    clock_.push_back(at_end);
    mine = trace::pack(recorded());
  }
  std::vector<trace::RankTrace> ranks;
  for (const std::string& packed : gather_on_chief(ranks_, mine))
    ranks.push_back(trace::unpack(packed));
  trace::set_partial_trace({}, nullptr, nullptr);
  collector_.reset();
  if (!is_chief()) return;
  // On GPUs, the end of an all-reduce is the end of its enqueuing.
  if (!is_on_gpus_) trace::order_collectives(ranks);
  write(ranks);
}

trace::RankTrace Tracing::recorded() const {
  return {.rank = ranks_.rank(),
          .host = host_name(),
          .process = ::getpid(),
          .clock = clock_,
          .threads = collector_ ? collector_->threads() : std::vector<trace::ThreadEvents>()};
}

std::optional<trace::RankTrace> Tracing::extract_trace() {
  const std::lock_guard lock(mutex_);
  if (!collector_) return std::nullopt;
  if (full_at_step_ == 0) collector_->collect();
  trace::RankTrace part = recorded();
  collector_.reset();
  return part;
}

void Tracing::fail() noexcept {
  if (!is_done_ && !options_.file.empty()) trace::start_partial_trace();
}

void Tracing::write(const std::vector<trace::RankTrace>& ranks) {
  try {
    write_(ranks, [this](std::string_view bytes) { file_->write(bytes); });
    file_->commit();
  } catch (const Error& error) {
    lost_ = error;
    session_.logger()->warn(
        fmt::format("the trace is lost; the training continues: {}", error.what()));
    return;
  }
  describe(ranks);
}

void Tracing::describe(const std::vector<trace::RankTrace>& ranks) const {
  std::uint64_t lost = 0;
  std::int64_t uncertainty = 0;
  for (const trace::RankTrace& rank : ranks) {
    lost += rank.lost();
    uncertainty = std::max(uncertainty, rank.uncertainty());
  }
  std::string text = fmt::format("trace of {} on {}: {}", counted(traced_, "step"),
                                 counted(std::ssize(ranks), "rank"), options_.file.string());
  if (uncertainty > 0)
    text += fmt::format("; the clocks of its hosts agree within {:.1f} us",
                        1e-3 * static_cast<double>(uncertainty));
  if (full_at_step_ > 0)
    text += fmt::format("; it is full after step {}, later ones are left out", full_at_step_);
  if (lost > 0)
    text += fmt::format("; {} are left out, because a step had too many",
                        counted(static_cast<std::int64_t>(lost), "event"));
  session_.logger()->info(text);
}

void Tracing::throw_if_lost() const {
  if (options_.file.empty()) return;
  Agreement(ranks_).all_or_none(ErrorCategory::output, options_.file.string(),
                                "expected to write the trace", [this] {
                                  if (lost_) throw Error(*lost_);
                                  return std::string();
                                });
}

}  // namespace lockstep::inline v0::job
