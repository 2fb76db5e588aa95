#include "lockstep/train/input/data_warnings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>

#include "lockstep/base/text.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::inline v0::train {

void log_tokenizer_source(const strategy::Strategy& strategy, const data::TextSchema& text) {
  if (!strategy.is_chief()) return;
  if (const std::string reason = text.why_content(); !reason.empty())
    strategy.session().logger()->info(
        fmt::format("using the tokenizer in the checkpoint: {}", reason));
}

std::string class_warning(const data::Dataset& dataset, std::int64_t outputs,
                          std::int32_t highest_label) {
  const data::SampleSpec& spec = dataset.spec();
  if (spec.classes() == 0 || !spec.targets.front().shape.empty() || highest_label + 1 >= outputs ||
      (spec.classes() == outputs && !dataset.source().info().counts_classes))
    return "";
  return fmt::format(
      "the labels of {} go up to {}, and the model has {} outputs: if these are not {} of its "
      "classes, the metrics have no meaning",
      dataset.description(), highest_label, outputs, highest_label + 1);
}

namespace {

/// Mean and deviation of one column.
struct ColumnScale {
  std::string name;
  double sum = 0;
  double squares = 0;
  std::int64_t records = 0;

  void add(double value) {
    sum += value;
    squares += value * value;
    ++records;
  }
  double mean() const { return sum / static_cast<double>(records); }
  double deviation() const {
    return std::sqrt(std::max(0.0, squares / static_cast<double>(records) - mean() * mean()));
  }
  bool is_far() const {
    constexpr double kFar = 10;
    constexpr double kNear = 1e-3;
    if (records == 0) return false;
    return std::abs(mean()) > kFar || deviation() > kFar ||
           (deviation() > 0 && deviation() < kNear);
  }
};

/// Returns the scales of all features, in which the rows of a window are one, then of all targets.
std::vector<ColumnScale> scales_of(const data::RecordSource& source) {
  const data::SampleSpec& spec = source.spec();
  data::Batch one(spec);
  data::Sample sample = one.sample();
  const std::span<const float> features = sample.features();
  const std::span<const float> targets = sample.values();
  std::vector<ColumnScale> columns;
  for (const std::string& name : source.info().feature_names) columns.push_back({.name = name});
  const std::size_t width = columns.size();
  const std::vector<std::string>& target_names = source.info().target_names;
  for (std::size_t i = 0; i < targets.size(); ++i)
    columns.push_back(
        {.name = i < target_names.size() ? target_names[i] : fmt::format("target {}", i + 1)});
  constexpr std::int64_t kMaxRecords = 1000;
  const std::int64_t records = std::min(source.size(), kMaxRecords);
  for (std::int64_t i = 0; i < records; ++i) {
    try {
      source.read(i * source.size() / records, sample);
    } catch (const std::exception&) {
      continue;  // reported when the record is read for training
    }
    for (std::size_t j = 0; j < features.size(); ++j)
      columns[j % width].add(static_cast<double>(features[j]));
    for (std::size_t j = 0; j < targets.size(); ++j)
      columns[width + j].add(static_cast<double>(targets[j]));
  }
  return columns;
}

}  // namespace

std::string scale_warning(const data::Dataset& dataset, bool scales_targets) {
  const data::RecordSource& source = dataset.source();
  if (source.info().feature_names.empty() || source.info().has_images ||
      dataset.preparation() != source.info().preparation)
    return "";
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> named;
  std::size_t more = 0;
  std::vector<ColumnScale> columns = scales_of(source);
  if (scales_targets) columns.resize(source.info().feature_names.size());
  for (const ColumnScale& column : columns) {
    if (!column.is_far()) continue;
    if (named.size() == kNamed)
      ++more;
    else
      named.push_back(fmt::format("{} (mean {:.4g}, deviation {:.4g})", column.name, column.mean(),
                                  column.deviation()));
  }
  if (named.empty()) return "";
  return fmt::format(
      "{}: columns are far from unit scale, with which a training is slow or diverges: {}{}; "
      "standardize them: (x - mean) / deviation, in every table with the mean and the deviation of "
      "the training data",
      dataset.description(), fmt::join(named, ", "),
      more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string length_warning(const data::Dataset& dataset) {
  constexpr std::int64_t kLong = 4096;
  constexpr std::int64_t kFew = 16;
  const auto& text = dataset.source().info().text;
  if (!text || text->length < kLong || dataset.size() >= kFew) return "";
  return fmt::format(
      "{}: there {} only {} of {} tokens each; length= is the number of tokens of a sample, with "
      "whose square the time of attention grows",
      dataset.description(), dataset.size() == 1 ? "is" : "are", counted(dataset.size(), "sample"),
      text->length);
}

void warn_of_scales(const strategy::Strategy& strategy, const data::Dataset& dataset,
                    bool scales_targets) {
  if (!strategy.is_chief()) return;
  const std::string warning = scale_warning(dataset, scales_targets);
  if (!warning.empty()) strategy.session().logger()->warn(warning);
  const std::string length_text = length_warning(dataset);
  if (!length_text.empty()) strategy.session().logger()->warn(length_text);
}

void report_table(const strategy::Strategy& strategy, const data::Dataset& dataset,
                  const data::TableSchema* trained) {
  const auto& table = dataset.source().info().table;
  if (!strategy.is_chief() || !table) return;
  const auto logger = strategy.session().logger();
  const std::vector<std::string> lines = table->summary(trained);
  if (trained != nullptr) {
    logger->info(fmt::format("{}: {}", dataset.description(), fmt::join(lines, "; ")));
  } else {
    logger->info(fmt::format("{}: {}", dataset.description(), lines.front()));
    for (const std::string& line : std::span(lines).subspan(1)) logger->info("  " + line);
  }
  if (const std::string statistics = table->statistics(); trained == nullptr && !statistics.empty())
    logger->debug(fmt::format("standardized columns: {}", statistics));
  for (const std::string& warning : table->warnings(trained)) logger->warn(warning);
}

namespace {

/// "age" of a table, otherwise "number 3 of 4".
std::string column_text(std::size_t index, std::size_t count,
                        const std::vector<std::string>& names) {
  const bool has_names = !names.empty() && count % names.size() == 0;  // once a row of a window
  return has_names ? names[index % names.size()] : fmt::format("number {} of {}", index + 1, count);
}

/// "record 17", or its file and number in the file if they are known.
std::string record_text(const data::RecordSource& source, std::int64_t record_id) {
  std::int64_t first = 0;
  for (const data::StoredFile& file : source.info().files) {
    if (record_id < first + file.records)
      return fmt::format("{}: record {}", file.name, record_id - first);
    first += file.records;
  }
  return fmt::format("record {}", record_id);
}

}  // namespace

std::string not_finite_text(const data::RecordSource& source,
                            const std::vector<data::Batch>& parts) {
  for (const data::Batch& part : parts) {
    const auto text_of = [&](const data::TensorArray& array, const std::string& what,
                             const std::vector<std::string>& names) -> std::string {
      if (array.type != ElementType::float32) return "";
      const std::span<const float> values = array.as<float>();
      const auto wrong = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
      if (wrong == values.end()) return "";
      const std::size_t count = values.size() / part.record_ids.size();
      const auto at = static_cast<std::size_t>(wrong - values.begin());
      return fmt::format("{}{} has {} in the {} {}",
                         record_text(source, part.record_ids[at / count]),
                         part.partner_labels.empty() ? "" : ", or the record mixed into it,",
                         std::isnan(*wrong) ? std::abs(*wrong) : *wrong, what,
                         column_text(at % count, count, names));
    };
    const auto text_of_all = [&](const std::vector<data::TensorArray>& arrays,
                                 const std::string& what, const std::vector<std::string>& names) {
      std::string text;
      for (std::size_t i = 0; text.empty() && i < arrays.size(); ++i)
        text = i == 0 ? text_of(arrays[i], what, names) : text_of(arrays[i], arrays[i].name, {});
      return text;
    };
    std::string text = text_of_all(part.inputs, "feature", source.info().feature_names);
    if (text.empty()) text = text_of_all(part.targets, "target", source.info().target_names);
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace lockstep::inline v0::train
