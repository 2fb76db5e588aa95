#include "lockstep/train/callbacks/csv_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/table/csv_rows.h"

namespace lockstep::inline v0::train {
namespace {

/// Quotes a cell as in RFC 4180, also one with leading or trailing blanks, which the reader strips.
std::string quoted_cell(std::string_view text) {
  const bool has_blanks = text.starts_with(' ') || text.ends_with(' ') || text.starts_with('\t') ||
                          text.ends_with('\t');
  if (!has_blanks && text.find_first_of(",\"\r\n") == std::string_view::npos)
    return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string column_of(const strategy::StepPart& part) { return std::string("step_") + part.name; }

}  // namespace

CsvLog::CsvLog(std::filesystem::path file, std::shared_ptr<Logger> logger)
    : file_(std::move(file)), logger_(logger ? std::move(logger) : make_logger()) {}

void CsvLog::on_train_begin(const TrainBegin& begin) {
  remove_abandoned_temporaries(file_.parent_path(), file_.filename().native());
  metrics_ = begin.known_metrics;
  columns_.clear();
  rows_.clear();
  scalars_.clear();
  if (begin.first_step > 0) read(begin.first_step);
  for (const std::string& metric : metrics_) add_column(metric);
  for (const char* column : {"learning_rate", "samples_per_second", "seconds"}) add_column(column);
  for (const strategy::StepPart& part : strategy::kStepParts) add_column(column_of(part));
  add_column("bound_by");
  write();
}

void CsvLog::add_column(const std::string& column) {
  if (std::ranges::find(columns_, column) == columns_.end()) columns_.push_back(column);
}

void CsvLog::read(std::int64_t first_step) {
  std::ifstream in(file_);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  data::CsvRows rows(text, file_.string());
  if (!rows.next()) return;  // the earlier run had no rows
  const auto refuse = [&] {
    throw Error(ErrorCategory::data, file_.string(),
                "expected the CSV log of the training that is resumed, with the columns epoch and "
                "step first; move the file away to begin another one",
                fmt::format("got \"{}\" in line {}", fmt::join(rows.fields(), ","), rows.line()));
  };
  const std::vector<std::string> header(rows.fields().begin(), rows.fields().end());
  if (header.size() < 2 || header[0] != "epoch" || header[1] != "step") refuse();
  for (std::size_t i = 2; i < header.size(); ++i) add_column(header[i]);
  while (rows.next()) {
    const std::vector<std::string_view>& cells = rows.fields();
    const auto epoch = parse_number<std::int64_t>(cells[0]);
    const auto step =
        cells.size() == header.size() ? parse_number<std::int64_t>(cells[1]) : std::nullopt;
    if (!epoch || !step) refuse();
    if (*step > first_step) break;  // lost with the earlier run
    Row& row = rows_.emplace_back(Row{.epoch = *epoch, .step = *step, .cells = {}});
    for (std::size_t i = 2; i < cells.size(); ++i) row.cells[header[i]] = cells[i];
  }
}

void CsvLog::on_scalar(const ScalarLogs& logs) { scalars_[logs.name] = logs.value; }

void CsvLog::add(Row& row, const std::string& column, std::optional<double> value) {
  add_column(column);
  row.cells[column] = value && std::isfinite(*value) ? fmt::format("{}", *value) : "";
}

void CsvLog::on_epoch_end(const EpochLogs& logs) {
  // Removes the row of an earlier run that ended within this epoch.
  std::erase_if(rows_, [&](const Row& row) { return row.epoch >= logs.epoch; });
  Row row{.epoch = logs.epoch, .step = logs.step, .cells = {}};
  for (const std::string& metric : metrics_) add(row, metric, logs.metric(metric));
  row.cells["learning_rate"] = fmt::format("{}", logs.learning_rate);
  add(row, "samples_per_second", logs.samples_per_second);
  add(row, "seconds", logs.seconds);
  const bool is_measured = logs.breakdown != strategy::StepBreakdown{};
  for (const strategy::StepPart& part : strategy::kStepParts)
    add(row, column_of(part),
        is_measured ? std::optional(logs.breakdown.*part.member) : std::nullopt);
  if (logs.verdict) row.cells["bound_by"] = logs.verdict->bound_by;
  for (const auto& [name, value] : std::exchange(scalars_, {})) add(row, name, value);
  rows_.push_back(std::move(row));
  try {
    write();
  } catch (const Error& error) {
    if (!std::exchange(warned_, true))
      logger_->warn(
          fmt::format("{}; the training continues, and the log is tried again", error.what()));
  }
}

void CsvLog::write() const {
  std::string text = "epoch,step";
  for (const std::string& column : columns_) text += ',' + quoted_cell(column);
  text += '\n';
  for (const Row& row : rows_) {
    text += fmt::format("{},{}", row.epoch, row.step);
    for (const std::string& column : columns_) {
      const auto cell = row.cells.find(column);
      text += ',';
      if (cell != row.cells.end()) text += quoted_cell(cell->second);
    }
    text += '\n';
  }
  write_file_atomically(file_, text, Durability::cached);
}

}  // namespace lockstep::inline v0::train
