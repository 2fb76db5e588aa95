#include "apps/lockstep/prediction_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/record_frame.h"

namespace lockstep::apps {
namespace {

constexpr const char* kStandardOutput = "-";

/// exp(x) / sum of exp(x), computed without overflow.
std::vector<double> softmax(std::vector<double> values) {
  const double largest = *std::ranges::max_element(values);
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - largest);
  for (double& value : values) value /= sum;
  return values;
}

/// A field of a CSV table, quoted where that is necessary (RFC 4180).
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

/// A number as JSON; one that is not finite is null.
template <typename Number>
std::string json_number(Number value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

template <typename Number>
std::string json_list(const std::vector<Number>& values) {
  std::string list;
  for (const Number value : values) list += (list.empty() ? "" : ",") + json_number(value);
  return '[' + list + ']';
}

data::FloatList floats(const std::vector<double>& values) {
  data::FloatList list;
  for (const double value : values) list.push_back(static_cast<float>(value));
  return list;
}

}  // namespace

PredictionFormat prediction_format(std::string_view name, const std::string& path, bool json) {
  if (name == "csv") return PredictionFormat::csv;
  if (name == "jsonl") return PredictionFormat::jsonl;
  if (name == "tfrecord") return PredictionFormat::tfrecord;
  if (path == kStandardOutput) return json ? PredictionFormat::jsonl : PredictionFormat::csv;
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".csv" || extension == ".jsonl" || extension == ".tfrecord")
    return prediction_format(extension.substr(1), path, json);
  throw Error(ErrorCategory::input, "command line",
              "expected --output to end in .csv, .jsonl or .tfrecord, or to be -, or --format",
              fmt::format("got \"{}\"", path));
}

/// The prediction for one record.
struct PredictionFile::Row {
  std::int64_t record = 0;
  std::vector<float> outputs = {};
  std::vector<double> probabilities = {};  // of the classes, or of each output; empty: neither
  std::vector<std::int64_t> ranked =
      {};                 // classes, the most probable first, as many as are written
  std::string file = {};  // empty if unknown

  double probability() const { return probabilities[static_cast<std::size_t>(ranked.front())]; }
};

PredictionFile::PredictionFile(const PredictionOptions& options, const model::Shape& output,
                               const model::Loss& loss, const strategy::DataNames& names,
                               FileNames file_names)
    : options_(options),
      width_(model::row_width(loss, output)),
      has_positions_(model::element_count(output) > width_),
      classes_(model::class_count(loss, width_)),
      activation_(model::activation_of(loss)),
      targets_(names.targets),
      file_names_(std::move(file_names)) {
  if (activation_ == "sigmoid" && !targets_.empty()) classes_ = 0;  // a target, not a class
  if (classes_ == 0 && options_.top > 0)
    throw Error(ErrorCategory::input, "command line", "expected a model of classes with --top",
                fmt::format("its loss is {}", model::to_string(loss)));
  if (has_positions_ &&
      (options_.format == PredictionFormat::csv || options_.top > 0 || options_.logits))
    throw Error(ErrorCategory::input, "command line",
                fmt::format("expected --output FILE.jsonl or FILE.tfrecord, without --top and "
                            "--outputs logits, for a model with a class at each position of {}",
                            model::to_string(output)),
                options_.format == PredictionFormat::csv ? "got CSV"
                : options_.top > 0                       ? "got --top"
                                                         : "got --outputs logits");
  options_.top = std::min(options_.top, classes_);
  if (static_cast<std::int64_t>(names.classes.size()) == classes_) names_ = names.classes;
  if (options_.path == kStandardOutput) return;
  const std::filesystem::path path = options_.path;
  file_ = std::make_unique<AtomicFile>(path);
  remove_abandoned_temporaries(path.parent_path(), path.filename().native());
}

void PredictionFile::write(const std::string& text) {
  if (file_)
    file_->write(text);
  else
    std::fwrite(text.data(), 1, text.size(), stdout);  // StandardStreams reports its failures
}

PredictionFile::Row PredictionFile::row_of(std::int64_t record,
                                           std::span<const float> outputs) const {
  Row row{.record = record, .outputs = {outputs.begin(), outputs.end()}};
  if (file_names_) row.file = file_names_(record);
  std::vector<double> scores(outputs.begin(), outputs.end());
  if (classes_ == 0) {
    if (activation_ == "sigmoid")
      for (const double score : scores) row.probabilities.push_back(1 / (1 + std::exp(-score)));
    return row;
  }
  if (scores.size() == 1) scores.insert(scores.begin(), 0);  // one logit for two classes
  row.probabilities = softmax(scores);
  row.ranked.resize(scores.size());
  std::iota(row.ranked.begin(), row.ranked.end(), 0);
  if (options_.top > 1)
    std::ranges::stable_sort(row.ranked, [&](std::int64_t a, std::int64_t b) {
      return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
    });
  else
    row.ranked.front() = std::ranges::max_element(scores) - scores.begin();
  row.ranked.resize(static_cast<std::size_t>(std::max<std::int64_t>(options_.top, 1)));
  return row;
}

std::string PredictionFile::class_text(std::int64_t number) const {
  return names_.empty() ? std::to_string(number) : names_[static_cast<std::size_t>(number)];
}

std::string PredictionFile::header(std::int64_t width) const {
  // A column without a name has its number.
  const auto is_name = [](const std::string& text) {
    return text.find_first_not_of("0123456789") != std::string::npos;
  };
  const bool logits = options_.logits && !activation_.empty();
  std::string names = classes_ > 0 ? "record,predicted" : "record";
  for (std::int64_t i = 1; i <= options_.top; ++i)
    names += fmt::format(",top_{0},top_{0}_probability", i);
  const std::int64_t columns = classes_ > 0 && !logits ? classes_ : width;
  for (std::int64_t i = 0; options_.top == 0 && i < columns; ++i) {
    const auto target = static_cast<std::size_t>(i);
    if (classes_ == 0 && target < targets_.size() && is_name(targets_[target]))
      names += "," + csv_field(targets_[target]);
    else
      names += fmt::format(",{}_{}",
                           logits                ? "logit"
                           : activation_.empty() ? "output"
                                                 : "probability",
                           i);
  }
  if (file_names_) names += ",file";
  if (!names_.empty() && options_.top == 0) names += ",class";
  return names + '\n';
}

void PredictionFile::add(const strategy::Predictions& predictions) {
  if (predictions.record_ids.empty()) return;
  const auto width = static_cast<std::size_t>(predictions.width);
  const bool csv = options_.format == PredictionFormat::csv;
  // Not earlier: standard output stays empty if there is no prediction because of an error.
  std::string text = csv && records_ == 0 ? header(predictions.width) : "";
  for (std::size_t i = 0; i < predictions.record_ids.size(); ++i) {
    const std::span<const float> outputs = predictions.outputs.subspan(i * width, width);
    if (has_positions_) {
      text += text_of_positions(predictions.record_ids[i], outputs);
      continue;
    }
    const Row row = row_of(predictions.record_ids[i], outputs);
    if (csv)
      text += csv_line(row);
    else if (options_.format == PredictionFormat::jsonl)
      text += json_line(row);
    else
      data::append_record(text, example(row));
  }
  write(text);
  records_ += static_cast<std::int64_t>(predictions.record_ids.size());
}

std::string PredictionFile::csv_line(const Row& row) const {
  std::string line = std::to_string(row.record);
  if (classes_ > 0) line += fmt::format(",{}", row.ranked.front());
  if (options_.top > 0) {
    for (const std::int64_t number : row.ranked)
      line += fmt::format(",{},{:.9g}", csv_field(class_text(number)),
                          row.probabilities[static_cast<std::size_t>(number)]);
  } else if (options_.logits || row.probabilities.empty()) {
    line += fmt::format(",{:.9g}", fmt::join(row.outputs, ","));
  } else {
    line += fmt::format(",{:.9g}", fmt::join(row.probabilities, ","));
  }
  if (file_names_) line += "," + csv_field(row.file);
  if (!names_.empty() && options_.top == 0) line += "," + csv_field(class_text(row.ranked.front()));
  return line + '\n';
}

std::string PredictionFile::json_line(const Row& row) const {
  const auto quoted = [](const std::string& text) { return dump_json(nlohmann::json(text)); };
  std::string line = fmt::format("{{\"record\":{}", row.record);
  if (classes_ > 0)
    line += fmt::format(",\"predicted\":{},\"probability\":{}", row.ranked.front(),
                        json_number(row.probability()));
  if (options_.top > 0) {
    std::string list;
    for (const std::int64_t number : row.ranked)
      list += fmt::format("{}{{\"class\":{},\"probability\":{}}}", list.empty() ? "" : ",",
                          names_.empty() ? class_text(number) : quoted(class_text(number)),
                          json_number(row.probabilities[static_cast<std::size_t>(number)]));
    line += fmt::format(",\"top\":[{}]", list);
  } else if (row.probabilities.empty()) {
    line += ",\"outputs\":" + json_list(row.outputs);
  } else {
    line += fmt::format(",\"probabilities\":{},\"logits\":{}", json_list(row.probabilities),
                        json_list(row.outputs));
  }
  if (file_names_) line += ",\"file\":" + quoted(row.file);
  if (!names_.empty()) line += ",\"class\":" + quoted(class_text(row.ranked.front()));
  return line + "}\n";
}

std::string PredictionFile::text_of_positions(std::int64_t record,
                                              std::span<const float> outputs) const {
  data::Int64List predicted;
  std::vector<double> probabilities;
  data::BytesList classes;
  const auto width = static_cast<std::size_t>(width_);
  for (std::size_t first = 0; first < outputs.size(); first += width) {
    const Row row = row_of(record, outputs.subspan(first, width));
    predicted.push_back(row.ranked.front());
    probabilities.push_back(row.probability());
    if (!names_.empty()) classes.push_back(class_text(row.ranked.front()));
  }
  if (options_.format == PredictionFormat::jsonl) {
    std::string line = fmt::format("{{\"record\":{},\"predicted\":[{}],\"probability\":{}", record,
                                   fmt::join(predicted, ","), json_list(probabilities));
    if (file_names_) line += ",\"file\":" + dump_json(nlohmann::json(file_names_(record)));
    if (!names_.empty()) line += ",\"class\":" + dump_json(nlohmann::json(classes));
    return line + "}\n";
  }
  data::Example example = {{"record", data::Int64List{record}},
                           {"predicted", std::move(predicted)},
                           {"probability", floats(probabilities)}};
  if (file_names_) example["file"] = data::BytesList{file_names_(record)};
  if (!names_.empty()) example["class"] = std::move(classes);
  std::string framed;
  data::append_record(framed, data::serialize_example(example));
  return framed;
}

std::string PredictionFile::example(const Row& row) const {
  data::Example example = {{"record", data::Int64List{row.record}}};
  if (classes_ > 0) {
    example["predicted"] = data::Int64List{row.ranked.front()};
    example["probability"] = floats({row.probability()});
  }
  if (options_.top > 0) {
    std::vector<double> top;
    for (const std::int64_t number : row.ranked)
      top.push_back(row.probabilities[static_cast<std::size_t>(number)]);
    example["top"] = row.ranked;
    example["top_probability"] = floats(top);
  } else {
    example["outputs"] =
        options_.logits || row.probabilities.empty() ? row.outputs : floats(row.probabilities);
  }
  if (file_names_) example["file"] = data::BytesList{row.file};
  if (!names_.empty()) example["class"] = data::BytesList{class_text(row.ranked.front())};
  return data::serialize_example(example);
}

}  // namespace lockstep::apps
