#include "lockstep/strategy/callbacks/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "lockstep/checkpoint/files.h"

namespace lockstep::strategy {
namespace {

std::string row(std::string_view who, const data::WorkerShare& share) {
  return fmt::format("{:>7}  {:>6}  {:>12}  {:>9}\n", who,
                     share.files > 0 ? std::to_string(share.files) : "-", share.records,
                     share.bytes > 0 ? bytes_text(share.bytes) : "-");
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.{}f} {}", value,
                                 value < 9.995   ? 2
                                 : value < 99.95 ? 1
                                                 : 0,
                                 kUnits[unit]);
}

std::string shard_table(std::string_view policy, std::int64_t files, std::int64_t records,
                        std::int64_t bytes, const std::vector<data::WorkerShare>& shares) {
  std::string table = fmt::format("shard policy {}: {} records", policy, records);
  if (files > 0)
    table += fmt::format(" of {} file{}, {}", files, files == 1 ? "" : "s", bytes_text(bytes));
  table += '\n';
  if (shares.size() <= 1) return table;
  table += fmt::format("{:>7}  {:>6}  {:>12}  {:>9}\n", "rank", "files", "records", "bytes");
  if (shares.size() <= kMaxRanksShown) {
    for (std::size_t rank = 0; rank < shares.size(); ++rank)
      table += row(std::to_string(rank), shares[rank]);
    return table;
  }
  const auto extremes = [&](std::int64_t data::WorkerShare::*field) {
    const auto less = [field](const data::WorkerShare& a, const data::WorkerShare& b) {
      return a.*field < b.*field;
    };
    const auto [least, most] = std::ranges::minmax_element(shares, less);
    return std::pair((*least).*field, (*most).*field);
  };
  const auto [least_files, most_files] = extremes(&data::WorkerShare::files);
  const auto [least_records, most_records] = extremes(&data::WorkerShare::records);
  const auto [least_bytes, most_bytes] = extremes(&data::WorkerShare::bytes);
  return table + row("least", {least_files, least_records, least_bytes}) +
         row("most", {most_files, most_records, most_bytes});
}

namespace {

constexpr double kInputBound =
    5;  // percentage of an epoch spent waiting for input that is reported

using Clock = std::chrono::steady_clock;
constexpr auto kRewriteEvery = std::chrono::milliseconds(100);

std::string metrics_text(const model::MetricSums& metrics, std::string_view prefix = "") {
  std::string text = fmt::format("{}loss {:.4f}", prefix, metrics.mean_loss());
  if (metrics.has_accuracy) text += fmt::format(", {}accuracy {:.4f}", prefix, metrics.accuracy());
  return text;
}

/// "4 s", "3:07", "2:05:10"
std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace

// Not fmt::print(), which would throw in the middle of a training.
void Progress::write(const std::string& text) {
  if (std::ferror(out_) != 0) return;
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

void Progress::print_line(const std::string& text) {
  const std::string blanks = line_width_ > 0 ? fmt::format("\r{:{}}\r", "", line_width_) : "";
  line_width_ = 0;
  write(blanks + text + "\n");
}

void Progress::rewrite_line(const std::string& text) {
  write(fmt::format("\r{:{}}", text, line_width_));
  line_width_ = text.size();
}

void Progress::on_train_begin(const TrainBegin& begin) {
  begin_ = begin;
  print_line(fmt::format("model {}, {} parameters{}; {}, {} records", begin.model, begin.parameters,
                         begin.precision == "float32" ? "" : ", computed in " + begin.precision,
                         begin.data, begin.records));
  print_line(fmt::format(
      "{} on {} replica{}, all-reduce {}{}; global batch {}, at most {} per replica in "
      "micro-batches of {}",
      begin.strategy, begin.world_size, begin.world_size == 1 ? "" : "s", begin.allreduce,
      begin.allreduce_reason.empty() ? "" : fmt::format(" ({})", begin.allreduce_reason),
      begin.global_batch, begin.per_replica_batch, begin.micro_batch));
  if (begin.global_batch < begin.world_size)
    print_line(
        fmt::format("{} of {} replicas have no sample in a step: the global batch is smaller than "
                    "the number of replicas",
                    begin.world_size - begin.global_batch, begin.world_size));
  std::int64_t bytes = 0;
  for (const data::StoredFile& file : begin.files) bytes += file.bytes;
  std::string shards =
      shard_table(begin.shard_policy, static_cast<std::int64_t>(begin.files.size()), begin.records,
                  bytes, begin.shares);
  shards.pop_back();
  print_line(shards);
  for (const data::DamagedFile& file : begin.damaged_files) print_line(file.text());
  if (begin.restored_from)
    print_line(
        fmt::format("resumed from {}, step {}", begin.restored_from->string(), begin.first_step));
  if (begin.initialized_from)
    print_line(
        fmt::format("initialized from {}{}", begin.initialized_from->string(),
                    begin.kept_head.empty() ? "" : fmt::format(", without {}", begin.kept_head)));
  print_line(
      fmt::format("steps {} to {}, {} per epoch; learning rate {}, seed {}; ready after {:.2f} s",
                  begin.first_step, begin.last_step, begin.steps_per_epoch, begin.learning_rate,
                  begin.seed, begin.start_seconds));
}

void Progress::on_epoch_begin(std::int64_t /*epoch*/) {
  sums_ = {};
  samples_ = 0;
  epoch_start_ = last_rewrite_ = Clock::now();
}

void Progress::on_batch_end(const StepLogs& logs) {
  if (!logs.skipped) sums_ += logs.metrics;
  samples_ += logs.samples;
  if (!options_.terminal) {
    if (options_.log_every > 0 && logs.step % options_.log_every == 0) print_line(step_line(logs));
    return;
  }
  const auto now = Clock::now();
  if (now - last_rewrite_ < kRewriteEvery) return;
  last_rewrite_ = now;
  rewrite_line(step_line(logs));
}

std::string Progress::step_line(const StepLogs& logs) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - epoch_start_).count();
  const double rate = static_cast<double>(samples_) / seconds;
  const std::int64_t epoch_end =
      std::min((logs.epoch + 1) * begin_.steps_per_epoch, begin_.last_step);
  const double left = static_cast<double>((epoch_end - logs.step) * begin_.global_batch) / rate;
  return fmt::format("epoch {}  step {}/{}  {}  {:.0f} samples/s  {} left in the epoch",
                     logs.epoch + 1, logs.step, begin_.last_step, metrics_text(sums_), rate,
                     duration_text(left));
}

void Progress::on_epoch_end(const EpochLogs& logs) {
  std::string line = fmt::format("epoch {}{}: {}", logs.epoch + 1,
                                 logs.complete ? "" : " (incomplete)", metrics_text(logs.metrics));
  if (logs.validation) line += ", " + metrics_text(*logs.validation, "validation ");
  line += fmt::format("; {} samples, {:.1f} s, {:.0f} samples/s", logs.samples, logs.seconds,
                      logs.samples_per_second);
  const auto percent = [&](double seconds) {
    return logs.seconds > 0 ? 100 * seconds / logs.seconds : 0;
  };
  line += fmt::format("; {:.1f} % of it waiting for input", percent(logs.input_wait_seconds));
  if (logs.data_workers > 1) line += fmt::format(" of {} threads", logs.data_workers);
  if (begin_.world_size > 1)
    line += fmt::format(", {:.1f} % communication, {:.1f} % waiting for other replicas",
                        percent(logs.communication.exposed - logs.communication.waited),
                        percent(logs.communication.waited));
  if (logs.times_seen > 0)
    line += fmt::format("; every record seen {}",
                        logs.times_seen == 1 ? "once" : fmt::format("{} times", logs.times_seen));
  if (logs.skipped_samples > 0)
    line += fmt::format("; {} samples in skipped steps", logs.skipped_samples);
  print_line(line);
  for (const BadFile& bad : logs.bad_files)
    print_line(fmt::format("{}{} bad record{} replaced by the next one; the first: {}",
                           bad.file.empty() ? "" : bad.file + ": ", bad.records,
                           bad.records == 1 ? "" : "s, each", bad.first));
  if (percent(logs.input_wait_seconds) > kInputBound)
    print_line(
        "the training waits for its input: increase --data-threads if cores are free; lockstep "
        "data benchmark reports which stage is slow");
}

void Progress::on_checkpoint(const CheckpointLogs& logs) {
  print_line(fmt::format("saved {}", logs.path.string()));
}

void Progress::on_train_end(const TrainEnd& end) {
  if (end.signal != 0)
    print_line(fmt::format("stopped after step {} on {}", end.steps, signal_name(end.signal)));
  print_line(fmt::format("{} steps, {:.1f} s; parameter hash {}", end.steps, end.seconds,
                         checkpoint::hex16(end.parameter_hash)));
}

}  // namespace lockstep::strategy
