#include "lockstep/strategy/callbacks/csv_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::strategy {
namespace {

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    cells.emplace_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return cells;
}

/// `name` without the characters that a CSV table gives a meaning.
std::string column_name(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return c == ',' || c == '"' || c == '\n' || c == '\r'; }, '_');
  return name;
}

}  // namespace

CsvLog::CsvLog(std::filesystem::path file, std::shared_ptr<Logger> logger)
    : file_(std::move(file)), logger_(logger ? std::move(logger) : make_logger()) {}

void CsvLog::on_train_begin(const TrainBegin& begin) {
  metrics_ = columns_ = begin.known_metrics;
  columns_.insert(columns_.end(), {"learning_rate", "samples_per_second", "seconds"});
  rows_.clear();
  scalars_.clear();
  if (begin.first_step > 0) read(begin.first_step);
  write();
}

void CsvLog::read(std::int64_t first_step) {
  std::ifstream in(file_);
  std::string line;
  if (!in || !std::getline(in, line)) return;  // the earlier run had none
  const std::vector<std::string> header = cells_of(line);
  const auto refuse = [&](std::string_view actual) {
    throw Error(ErrorCategory::data, file_.string(),
                "expected the CSV log of the training that is resumed, with the columns epoch and "
                "step first; move the file away to begin another one",
                fmt::format("got \"{}\"", actual));
  };
  if (header.size() < 2 || header[0] != "epoch" || header[1] != "step") refuse(line);
  for (std::size_t i = 2; i < header.size(); ++i)
    if (std::ranges::find(columns_, header[i]) == columns_.end()) columns_.push_back(header[i]);
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    const auto epoch = parse_number<std::int64_t>(cells[0]);
    const auto step =
        cells.size() == header.size() ? parse_number<std::int64_t>(cells[1]) : std::nullopt;
    if (!epoch || !step) refuse(line);
    if (*step > first_step) break;  // lost with the earlier run
    Row& row = rows_.emplace_back(Row{.epoch = *epoch, .step = *step, .cells = {}});
    for (std::size_t i = 2; i < cells.size(); ++i) row.cells[header[i]] = cells[i];
  }
}

void CsvLog::on_scalar(const ScalarLogs& logs) { scalars_[column_name(logs.name)] = logs.value; }

void CsvLog::add(Row& row, const std::string& column, std::optional<double> value) {
  if (std::ranges::find(columns_, column) == columns_.end()) columns_.push_back(column);
  row.cells[column] = value && std::isfinite(*value) ? fmt::format("{}", *value) : "";
}

void CsvLog::on_epoch_end(const EpochLogs& logs) {
  // Of a training that ended within the epoch that this run completes.
  std::erase_if(rows_, [&](const Row& row) { return row.epoch >= logs.epoch; });
  Row row{.epoch = logs.epoch, .step = logs.step, .cells = {}};
  for (const std::string& metric : metrics_) add(row, metric, logs.metric(metric));
  row.cells["learning_rate"] = fmt::format("{}", logs.learning_rate);
  add(row, "samples_per_second", logs.samples_per_second);
  add(row, "seconds", logs.seconds);
  for (const auto& [name, value] : std::exchange(scalars_, {})) add(row, name, value);
  rows_.push_back(std::move(row));
  try {
    write();
  } catch (const Error& error) {
    if (!std::exchange(warned_, true))
      logger_->warn("{}; the training continues, and the log is tried again", error.what());
  }
}

void CsvLog::write() const {
  std::string text = fmt::format("epoch,step,{}\n", fmt::join(columns_, ","));
  for (const Row& row : rows_) {
    text += fmt::format("{},{}", row.epoch, row.step);
    for (const std::string& column : columns_) {
      const auto cell = row.cells.find(column);
      text += ',';
      if (cell != row.cells.end()) text += cell->second;
    }
    text += '\n';
  }
  write_file_atomically(file_, text, Durability::cached);
}

}  // namespace lockstep::strategy
