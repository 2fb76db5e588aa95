#include "apps/lockstep/evaluate/prediction_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "apps/lockstep/process_setup.h"
#include "lockstep/base/error.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/record_frame.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr const char* kStandardOutput = "-";

/// The commas of a part of a header that are outside quotes.
std::string empty_fields(std::string_view header) {
  std::string commas;
  bool is_quoted = false;
  for (const char c : header) {
    if (c == '"') is_quoted = !is_quoted;
    if (c == ',' && !is_quoted) commas += c;
  }
  return commas;
}

}  // namespace

PredictionFormat prediction_format(PredictionFormat chosen, const std::string& path, bool json) {
  if (chosen != PredictionFormat::automatic) return chosen;
  if (path == kStandardOutput) return json ? PredictionFormat::jsonl : PredictionFormat::csv;
  const std::string extension = std::filesystem::path(path).extension().string();
  for (const auto format :
       {PredictionFormat::csv, PredictionFormat::jsonl, PredictionFormat::tfrecord})
    if (extension == fmt::format(".{}", kNamesOf<PredictionFormat>.name(format))) return format;
  throw Error(ErrorCategory::input, "command line",
              "expected --output to end in .csv, .jsonl or .tfrecord, or to be -, or --format",
              fmt::format("got \"{}\"", path));
}

/// The predictions for one record, or its error.
struct PredictionFile::Row {
  std::int64_t record = 0;
  std::vector<PredictedRow> outputs = {};  // in the order of outputs_
  std::string file = {};                   // empty if unknown
  std::vector<std::string> columns = {};   // copied
  std::string error = {};                  // empty if the record was read
};

void check_predictions(const PredictionOptions& options, std::span<const PredictedOutput> outputs) {
  const auto has_classes = [](const PredictedOutput& output) { return output.classes() > 0; };
  if (options.style.top > 0 && std::ranges::none_of(outputs, has_classes)) {
    std::vector<std::string> losses;
    for (const PredictedOutput& output : outputs) losses.push_back(model::to_string(output.loss()));
    throw Error(ErrorCategory::input, "command line", "expected a model of classes with --top",
                fmt::format("its loss is {}", fmt::join(losses, ", ")));
  }
  if (options.style.top > 0 && options.style.logits)
    throw Error(ErrorCategory::input, "command line",
                "expected --top, which writes probabilities, without --outputs logits", "got both");
  const bool is_csv = options.format == PredictionFormat::csv;
  if (const auto found = std::ranges::find_if(outputs, &PredictedOutput::has_positions);
      found != outputs.end() && (is_csv || options.style.top > 0 || options.style.logits))
    throw Error(ErrorCategory::input, "command line",
                fmt::format("expected JSON lines or TFRecord files, without --top and --outputs "
                            "logits, for a class at each position of {}",
                            found->name()),
                is_csv                  ? "got CSV"
                : options.style.top > 0 ? "got --top"
                                        : "got --outputs logits");
  if (options.has_columns && options.format == PredictionFormat::tfrecord)
    throw Error(ErrorCategory::input, "command line",
                "expected a CSV file or JSON lines with --keep-columns", "got a TFRecord file");
  if (outputs.size() == 1 || options.format != PredictionFormat::jsonl) return;
  for (const PredictedOutput& output : outputs)
    if (output.name() == "record" || output.name() == "file" ||
        (output.name() == "error" && options.has_errors) ||
        (output.name() == "columns" && options.has_columns))
      throw Error(ErrorCategory::input, "command line",
                  fmt::format("expected outputs with other names than record and file{}{} in JSON "
                              "lines; --select writes only one",
                              options.has_errors ? " and error" : "",
                              options.has_columns ? " and columns" : ""),
                  fmt::format("got {}", output.name()));
}

PredictionFile::PredictionFile(const PredictionOptions& options,
                               std::vector<PredictedOutput> outputs, FileNames file_names,
                               CopiedColumns copied)
    : options_(options),
      outputs_(std::move(outputs)),
      file_names_(std::move(file_names)),
      copied_(std::move(copied)) {
  check_predictions(options_, outputs_);
  if (options_.path == kStandardOutput) return;
  const std::filesystem::path path = options_.path;
  file_ = std::make_unique<AtomicFile>(path);
  remove_abandoned_temporaries(path.parent_path(), path.filename().native());
}

void PredictionFile::write(const std::string& text) {
  if (file_)
    file_->write(text);
  else
    print_exactly(text);
}

std::string PredictionFile::prefix(const PredictedOutput& output) const {
  return outputs_.size() == 1 ? "" : output.name() + ".";
}

std::string PredictionFile::header() const {
  std::string names;
  for (const PredictedOutput& output : outputs_)
    names += output.header(prefix(output), options_.style);
  if (file_names_) names += ",file";
  for (const PredictedOutput& output : outputs_)
    if (output.has_class_names() && options_.style.top == 0)
      names += "," + csv_field(prefix(output) + "class");
  if (options_.has_errors) names += ",error";
  std::string copied = "record";
  for (const std::string& name : copied_.names) {  // a copied target is beside its prediction
    const bool is_taken = (names + ",").find("," + csv_field(name) + ",") != std::string::npos;
    copied += "," + csv_field(is_taken ? "column." + name : name);
  }
  return copied + names + "\n";
}

void PredictionFile::add(const train::Predictions& predictions) {
  if (predictions.record_ids.empty() && predictions.bad.empty()) return;
  const bool csv = options_.format == PredictionFormat::csv;
  // Delayed until here, so that standard output stays empty after an early error.
  std::string text = csv && !std::exchange(has_rows_, true) ? header() : "";
  const auto begin_row = [&](std::int64_t record) {
    Row row{.record = record};
    if (file_names_) row.file = file_names_(record);
    if (copied_.fields) row.columns = copied_.fields(record);
    return row;
  };
  auto bad = predictions.bad.begin();
  const auto add_bad_before = [&](std::int64_t record) {
    for (; bad != predictions.bad.end() && bad->record_id < record; ++bad) {
      Row row = begin_row(bad->record_id);
      row.error = bad->problem;
      text += text_of(row);
    }
  };
  for (std::size_t i = 0; i < predictions.record_ids.size(); ++i) {
    add_bad_before(predictions.record_ids[i]);
    Row row = begin_row(predictions.record_ids[i]);
    for (const PredictedOutput& output : outputs_) {
      const train::OutputValues& all = predictions.all[output.index()];
      const auto width = static_cast<std::size_t>(all.width);
      row.outputs.push_back(output.row(all.values.subspan(i * width, width), options_.style));
    }
    text += text_of(row);
  }
  add_bad_before(std::numeric_limits<std::int64_t>::max());
  write(text);
  records_ += static_cast<std::int64_t>(predictions.record_ids.size());
}

std::string PredictionFile::text_of(const Row& row) const {
  if (options_.format == PredictionFormat::csv) return csv_line(row);
  if (options_.format == PredictionFormat::jsonl) return json_line(row);
  std::string record;
  data::append_record(record, example(row));
  return record;
}

std::string PredictionFile::csv_line(const Row& row) const {
  const bool is_bad = row.outputs.empty();
  std::string line = std::to_string(row.record);
  for (const std::string& field : row.columns) line += "," + csv_field(field);
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    line += is_bad ? empty_fields(outputs_[i].header("", options_.style))
                   : outputs_[i].fields(row.outputs[i], options_.style);
  if (file_names_) line += "," + csv_field(row.file);
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    if (outputs_[i].has_class_names() && options_.style.top == 0)
      line += "," + (is_bad ? "" : csv_field(outputs_[i].predicted_class(row.outputs[i])));
  if (options_.has_errors) line += "," + csv_field(row.error);
  return line + '\n';
}

std::string PredictionFile::json_line(const Row& row) const {
  const std::string file = file_names_ ? ",\"file\":" + json_string(row.file) : "";
  const auto class_of = [&](std::size_t i) {
    return outputs_[i].has_class_names()
               ? ",\"class\":" + json_string(outputs_[i].predicted_class(row.outputs[i]))
               : "";
  };
  std::string line = fmt::format("{{\"record\":{}", row.record);
  if (!copied_.names.empty()) {
    std::vector<std::string> members;
    for (std::size_t i = 0; i < row.columns.size(); ++i)
      members.push_back(json_string(copied_.names[i]) + ":" + json_string(row.columns[i]));
    line += fmt::format(",\"columns\":{{{}}}", fmt::join(members, ","));
  }
  if (row.outputs.empty()) return line + file + ",\"error\":" + json_string(row.error) + "}\n";
  if (outputs_.size() == 1)
    return line + "," + outputs_[0].members(row.outputs[0], options_.style) + file + class_of(0) +
           "}\n";
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    line += fmt::format(",{}:{{{}{}}}", json_string(outputs_[i].name()),
                        outputs_[i].members(row.outputs[i], options_.style), class_of(i));
  return line + file + "}\n";
}

std::string PredictionFile::example(const Row& row) const {
  data::Example example = {{"record", data::Int64List{row.record}}};
  if (row.outputs.empty()) example["error"] = data::BytesList{row.error};
  for (std::size_t i = 0; i < row.outputs.size(); ++i)
    outputs_[i].add_features(row.outputs[i], prefix(outputs_[i]), options_.style, example);
  if (file_names_) example["file"] = data::BytesList{row.file};
  return data::serialize_example(example);
}

}  // namespace lockstep::inline v0::apps
