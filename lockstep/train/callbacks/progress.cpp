#include "lockstep/train/callbacks/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <functional>
#include <span>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/terminal.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/train/callbacks/metric_text.h"

namespace lockstep::inline v0::train {
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
  std::string table = fmt::format("shard policy {}: {}", policy, counted(records, "record"));
  if (files > 0) table += fmt::format(" of {}, {}", counted(files, "file"), bytes_text(bytes));
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

// Percentages of an epoch above which waiting for input, and communication with waiting for other
// replicas, are reported.
constexpr double kInputBound = 5;
constexpr double kCommunicationBound = 20;
constexpr double kShortWait = 0.5;  // seconds per epoch that are not worth more threads

using Clock = std::chrono::steady_clock;
constexpr auto kRewriteEvery = std::chrono::milliseconds(100);

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

/// `stdout` may have been replaced by a FILE without a descriptor.
int descriptor_of(std::FILE* out) { return out == stdout ? STDOUT_FILENO : ::fileno(out); }

}  // namespace

struct ProgressBar::Row {
  std::int64_t epoch;
  std::int64_t step;
  model::MetricSums metrics;
  std::optional<model::MetricSums> validation;
  double samples_per_second;
  double seconds;
  std::span<const model::MetricValue> values = {};
  std::span<const model::MetricValue> validation_values = {};
};

ProgressBar::ProgressBar(std::FILE* out, const ProgressOptions& options)
    : out_(out),
      options_(options),
      descriptor_(descriptor_of(out)),
      is_on_terminal_(is_watched(descriptor_)) {}

// Not fmt::print(), which would throw in the middle of a training.
void ProgressBar::write(const std::string& text) {
  if (std::ferror(out_) != 0) return;
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

void ProgressBar::print_line(const std::string& text) { print_lines(printable(text) + "\n"); }

void ProgressBar::print_sentence(const std::string& text) {
  const std::string line = printable(text);
  print_lines((is_on_terminal_ ? wrap_words(line, 0, columns()) : line) + "\n");
}

// The last column stays free: some terminals wrap a line that fills it.
std::size_t ProgressBar::columns() const {
  return static_cast<std::size_t>(std::max(1, terminal_columns(descriptor_) - 1));
}

void ProgressBar::print_lines(const std::string& text) {
  const std::string blanks = line_width_ > 0 ? fmt::format("\r{:{}}\r", "", line_width_) : "";
  line_width_ = 0;
  write(blanks + text);
}

void ProgressBar::rewrite_line(const StepLogs& logs) {
  const std::string text = step_line(logs, columns());
  write(fmt::format("\r{:{}}", text, std::min(line_width_, columns())));
  line_width_ = text.size();
}

void ProgressBar::print_details() {
  std::string table = job::placement_table(begin_.placements);
  std::int64_t bytes = 0;
  for (const data::StoredFile& file : begin_.files) bytes += file.bytes;
  table += shard_table(begin_.shard_policy, static_cast<std::int64_t>(begin_.files.size()),
                       begin_.records, bytes, begin_.shares);
  print_lines(table);
  print_sentence(fmt::format(
      "all-reduce {}{}; at most {} per replica in micro-batches of {}; {} per epoch; seed {}; "
      "ready after {:.2f} s",
      begin_.allreduce,
      begin_.allreduce_reason.empty() ? "" : fmt::format(" ({})", begin_.allreduce_reason),
      counted(begin_.per_replica_batch, "sample"), begin_.micro_batch,
      counted(begin_.steps_per_epoch, "step"), begin_.seed, begin_.start_seconds));
}

void ProgressBar::on_train_begin(const TrainBegin& begin) {
  begin_ = begin;
  interval_.begin(begin);
  bound_by_.clear();
  on_epoch_begin(0);  // a run that resumes may validate before a step
  print_sentence(fmt::format(
      "model {}, {}{}{}; {}, {}", begin.model, counted(begin.parameters, "parameter"),
      begin.frozen_parameters == 0
          ? ""
          : fmt::format(", {} of them trained", begin.parameters - begin.frozen_parameters),
      begin.precision == "float32" ? "" : ", computed in " + begin.precision, begin.data,
      counted(begin.records, "record")));
  if (begin.split) print_sentence("split: " + begin.split->text());
  print_sentence(fmt::format("{} on {}; batch {}, {}, learning rate {}", begin.strategy,
                             counted(begin.world_size, "replica"), begin.global_batch,
                             counted(begin.last_step, "step"), begin.learning_rate));
  if (!begin.caveat.empty()) print_sentence(begin.caveat);
  if (!options_.length.empty()) print_sentence(options_.length);
  if (begin.ranks > 1) {
    const std::string& interface = begin.placements.front().interface;
    print_sentence(fmt::format("{} on {}; messages over {}{}: {}", counted(begin.ranks, "rank"),
                               counted(begin.nodes, "node"), begin.transport,
                               interface.empty() ? "" : " by " + interface,
                               begin.transport_reason));
  }
  if (begin.global_batch < begin.world_size)
    print_sentence(
        fmt::format("{} of {} replicas have no sample in a step: the global batch is smaller than "
                    "the number of replicas",
                    begin.world_size - begin.global_batch, begin.world_size));
  if (options_.verbose) print_details();
  for (const data::DamagedFile& file : begin.damaged_files) print_sentence(file.text());
  if (const std::string nothing = begin.nothing_to_do(); !nothing.empty())
    print_sentence(nothing);
  else if (begin.restored_from)
    print_sentence(
        fmt::format("resumed from {}, step {}", begin.restored_from->string(), begin.first_step));
  if (begin.initialized_from)
    print_sentence(fmt::format("initialized from {}{}", begin.initialized_from->string(),
                               begin.uninitialized_head.empty()
                                   ? ""
                                   : fmt::format(", without {}", begin.uninitialized_head)));
}

void ProgressBar::on_epoch_begin(std::int64_t /*epoch*/) {
  sums_ = {};
  samples_ = 0;
  epoch_start_ = last_rewrite_ = Clock::now();
  paused_seconds_ = 0;
}

std::int64_t ProgressBar::last_step_of(std::int64_t epoch) const {
  return std::min((epoch + 1) * begin_.steps_per_epoch, begin_.last_step);
}

double ProgressBar::epoch_seconds() const { return seconds_since(epoch_start_) - paused_seconds_; }

void ProgressBar::on_batch_end(const StepLogs& logs) {
  if (!logs.skipped) sums_ += logs.metrics;
  samples_ += logs.samples;
  interval_.add(logs);
  const bool is_due = options_.log_every > 0 && logs.step % options_.log_every == 0;
  const std::optional<strategy::Verdict> verdict = is_due ? interval_.verdict() : std::nullopt;
  const strategy::StepBreakdown step = verdict ? interval_.mean() : strategy::StepBreakdown{};
  if (verdict) {
    bound_by_ = verdict->bound_by;
    interval_.restart();
  }
  if (is_on_terminal_) {
    const auto now = Clock::now();
    if (now - last_rewrite_ < kRewriteEvery) return;
    last_rewrite_ = now;
    return rewrite_line(logs);
  }
  // The last step of an epoch is in the epoch's row.
  if (options_.log_every == 0 || logs.step == last_step_of(logs.epoch)) return;
  if (!is_due && logs.step != begin_.first_step + 1) return;
  print_row({.epoch = logs.epoch,
             .step = logs.step,
             .metrics = sums_,
             .validation = {},
             .samples_per_second = static_cast<double>(samples_) / epoch_seconds(),
             .seconds = epoch_seconds()});
  if (verdict) print_verdict(step, *verdict);
}

void ProgressBar::print_verdict(const strategy::StepBreakdown& step,
                                const strategy::Verdict& verdict) {
  const std::size_t width = is_on_terminal_ ? columns() : 79;
  print_line(strategy::to_text(step, width));
  print_line(verdict.text.substr(0, width));
}

std::string ProgressBar::step_line(const StepLogs& logs, std::size_t columns) const {
  const double rate = static_cast<double>(samples_) / epoch_seconds();
  const double left =
      static_cast<double>((last_step_of(logs.epoch) - logs.step) * begin_.global_batch) / rate;
  struct Part {
    int importance;
    std::string text;
  };
  std::vector<Part> parts = {{3, fmt::format("epoch {}", logs.epoch + 1)},
                             {6, fmt::format("step {}/{}", logs.step, begin_.last_step)},
                             {5, "loss " + metric_text(sums_.loss())}};
  if (sums_.has_accuracy()) parts.push_back({2, fmt::format("accuracy {:.4f}", sums_.accuracy())});
  parts.push_back({1, fmt::format("{:.0f} samples/s", rate)});
  if (!bound_by_.empty()) parts.push_back({0, "bound by " + bound_by_});
  if (left > 0) parts.push_back({4, duration_text(std::ceil(left)) + " left in epoch"});
  for (;;) {
    std::string line;
    for (const Part& part : parts) line += (line.empty() ? "" : "  ") + part.text;
    if (line.size() <= columns) return line;
    if (parts.size() == 1) return line.substr(0, columns);
    parts.erase(std::ranges::min_element(parts, {}, &Part::importance));
  }
}

void ProgressBar::print_row(const Row& row) {
  has_accuracy_ = has_accuracy_ || row.metrics.has_accuracy();
  std::string header;
  std::string cells;
  const auto add = [&](std::string_view name, std::size_t width, const std::string& cell) {
    const std::string_view gap = header.empty() ? "" : "  ";
    header += fmt::format("{}{:>{}}", gap, name, width);
    cells += fmt::format("{}{:>{}}", gap, cell, width);
  };
  const auto accuracy = [](const model::MetricSums& metrics) {
    return fmt::format("{:.4f}", metrics.accuracy());
  };
  const std::string last = std::to_string(begin_.last_step);
  add("epoch", 5, std::to_string(row.epoch + 1));
  add("step", std::max<std::size_t>(4, 2 * last.size() + 1), fmt::format("{}/{}", row.step, last));
  add("loss", 8, metric_text(row.metrics.loss()));
  if (has_accuracy_) add("accuracy", 8, accuracy(row.metrics));
  if (begin_.has_validation) {
    add("val loss", 8, row.validation ? metric_text(row.validation->loss()) : "");
    // Rows with large step numbers would be wider than 80 columns.
    const std::string_view name = last.size() < 5 ? "val accuracy" : "val acc";
    if (has_accuracy_)
      add(name, std::max<std::size_t>(8, name.size()),
          row.validation ? accuracy(*row.validation) : "");
  }
  add("samples/s", 9, fmt::format("{:.0f}", row.samples_per_second));
  add("time", 7,
      row.seconds < 60 ? fmt::format("{:.1f} s", row.seconds) : duration_text(row.seconds));
  has_metric_columns_ = add_columns(row, header, cells);
  if (header != header_) print_line(header);
  header_ = header;
  print_line(cells);
}

bool ProgressBar::add_columns(const Row& row, std::string& header, std::string& cells) const {
  constexpr std::size_t kColumns = 80;
  std::string names;
  std::string numbers;
  const auto add = [&](const std::string& name, std::span<const model::MetricValue> values,
                       const std::string& label) {
    const auto found = std::ranges::find(values, name, &model::MetricValue::name);
    const std::size_t width = std::max<std::size_t>(8, label.size());
    names += fmt::format("  {:>{}}", label, width);
    numbers += fmt::format("  {:>{}}",
                           found == values.end() ? "" : metric_text(found->values.front()), width);
  };
  for (const std::string& name : begin_.metrics) {
    add(name, row.values, name);
    if (begin_.has_validation) add(name, row.validation_values, "val " + name);
  }
  if (header.size() + names.size() > kColumns) return false;
  header += names;
  cells += numbers;
  return true;
}

void ProgressBar::print_metrics(const EpochLogs& logs) {
  if (begin_.metrics.empty() || has_metric_columns_) return;
  print_line("  " + metric_line(logs.values));
  if (logs.validation) print_line("  validation: " + metric_line(logs.validation_values));
}

void ProgressBar::on_epoch_end(const EpochLogs& logs) {
  last_epoch_ = logs;
  print_row({.epoch = logs.epoch,
             .step = logs.step,
             .metrics = logs.metrics,
             .validation = logs.validation,
             .samples_per_second = logs.samples_per_second,
             .seconds = logs.seconds,
             .values = logs.values,
             .validation_values = logs.validation_values});
  print_metrics(logs);
  print_time_shares(logs);
  if (logs.skipped_samples > 0)
    print_line(fmt::format("{} in skipped steps", counted(logs.skipped_samples, "sample")));
  for (const BadFile& bad : logs.bad_files)
    print_sentence(fmt::format(
        "{}{}{} replaced by the next one; the first: {}", bad.file.empty() ? "" : bad.file + ": ",
        counted(bad.records, "bad record"), bad.records == 1 ? "" : ", each", bad.first));
}

void ProgressBar::on_validation(const EpochLogs& logs) {
  paused_seconds_ += logs.validation_seconds;
  print_row({.epoch = logs.epoch,
             .step = logs.step,
             .metrics = sums_,
             .validation = logs.validation,
             .samples_per_second = static_cast<double>(samples_) / epoch_seconds(),
             .seconds = epoch_seconds(),
             .validation_values = logs.validation_values});
  if (!begin_.metrics.empty() && !has_metric_columns_)
    print_line("  validation: " + metric_line(logs.validation_values));
}

void ProgressBar::print_time_shares(const EpochLogs& logs) {
  const auto percent = [&](double seconds) {
    return logs.seconds > 0 ? 100 * seconds / logs.seconds : 0;
  };
  const bool waits_for_input =
      logs.input_wait_seconds > kShortWait && percent(logs.input_wait_seconds) > kInputBound;
  const bool waits_for_ranks =
      begin_.world_size > 1 && percent(logs.communication.exposed) > kCommunicationBound;
  if (logs.verdict) print_verdict(logs.breakdown, *logs.verdict);
  if (!options_.verbose && (logs.verdict || (!waits_for_input && !waits_for_ranks))) return;
  std::string line = fmt::format("waiting: {:.1f} % for input", percent(logs.input_wait_seconds));
  if (logs.data_workers > 0) line += fmt::format(" ({})", counted(logs.data_workers, "thread"));
  if (begin_.world_size > 1)
    line += fmt::format(", {:.1f} % for communication, {:.1f} % for replicas",
                        percent(logs.communication.exposed - logs.communication.waited),
                        percent(logs.communication.waited));
  print_line(line);
  if (options_.verbose && logs.times_seen > 0)
    print_line(fmt::format("every record seen {}",
                           logs.times_seen == 1 ? "once" : counted(logs.times_seen, "time")));
  if (waits_for_input && !logs.verdict)
    print_sentence(
        "the training waits for its input: increase --data-threads if cores are free; lockstep "
        "data benchmark reports which stage is slow");
}

void ProgressBar::on_checkpoint(const CheckpointLogs& logs) {
  paused_seconds_ += logs.seconds;
  print_sentence(fmt::format("saved {}", logs.path.string()));
}

void ProgressBar::print_profile(const model::Profile& profile) {
  constexpr std::size_t kLongest = 10;
  std::vector<model::ProfiledPiece> pieces = profile.pieces;
  std::ranges::stable_sort(pieces, std::ranges::greater{}, &model::ProfiledPiece::milliseconds);
  pieces.resize(std::min(pieces.size(), kLongest));
  std::size_t width = profile.step.name.size();
  for (const model::ProfiledPiece& piece : pieces) width = std::max(width, piece.name.size());
  print_line(fmt::format("profile of {} of {}, medians, the longest of {}:",
                         counted(profile.steps, "step"), counted(profile.samples, "sample"),
                         counted(static_cast<std::int64_t>(profile.pieces.size()), "piece")));
  print_line(fmt::format("{:{}}  {:>9}  {:>7}  {:>9}  {:>8}", "", width, "ms", "of step",
                         "floor ms", "of floor"));
  pieces.push_back(profile.step);
  for (const model::ProfiledPiece& piece : pieces) {
    const std::string speed =
        piece.floor_milliseconds > 0 ? fmt::format("{:.0f} %", 100 * piece.share()) : "";
    print_line(fmt::format(
        "{:{}}  {:9.3f}  {:>7}  {:9.3f}  {:>8}{}{}", piece.name, width, piece.milliseconds,
        fmt::format("{:.1f} %", 100 * piece.milliseconds / profile.step.milliseconds),
        piece.floor_milliseconds, speed, piece.work.algorithm.empty() ? "" : "  ",
        piece.work.algorithm));
  }
}

void ProgressBar::on_train_end(const TrainEnd& end) {
  if (end.profile) print_profile(*end.profile);
  const std::string tables =
      metric_tables(last_epoch_.validation ? last_epoch_.validation_values : last_epoch_.values,
                    begin_.class_names, begin_.class_output);
  if (!tables.empty()) print_lines((last_epoch_.validation ? "validation " : "training ") + tables);
  if (end.signal != 0)
    print_line(fmt::format("stopped after step {} on {}", end.steps, signal_name(end.signal)));
  if (!end.stop_reason.empty())
    print_sentence(fmt::format("stopped after step {}: {}", end.steps, end.stop_reason));
  if (end.skipped_steps > 0)
    print_line(fmt::format("{} of the {} of this run skipped: loss or gradient not finite",
                           end.skipped_steps, counted(end.steps - begin_.first_step, "step")));
  if (!begin_.nothing_to_do().empty()) return;
  if (end.test) {
    std::string text = "test: loss " + metric_text(end.test->loss());
    if (end.test->has_accuracy()) text += fmt::format(", accuracy {:.4f}", end.test->accuracy());
    if (const std::string more = metric_line(end.test_values); !more.empty()) text += ", " + more;
    print_line(
        fmt::format("{} ({}, at step {})", text, counted(end.test->samples, "record"), end.steps));
  }
  print_line(fmt::format("{}, {:.1f} s; parameter hash {}", counted(end.steps, "step"), end.seconds,
                         checkpoint::hex16(end.parameter_hash)));
}

}  // namespace lockstep::inline v0::train
