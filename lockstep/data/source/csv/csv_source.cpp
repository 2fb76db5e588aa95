#include "lockstep/data/source/csv/csv_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/mapped_file.h"
#include "lockstep/data/source/csv/csv_inference.h"
#include "lockstep/data/source/csv/csv_text.h"
#include "lockstep/data/source/index_exchange.h"
#include "lockstep/data/table/transform.h"

namespace lockstep::inline v0::data {

CsvSource::CsvSource(const std::filesystem::path& file, const CsvOptions& options)
    : file_(file), options_(options) {
  const auto exchange = std::exchange(options_.exchange, {});
  if (exchange.members > 1)  // throws on every rank that lacks one
    for (const std::filesystem::path& one : table_files(file_)) InputFile{one};
  read_on_node(
      exchange, "table",
      [this] {
        read_table(nullptr);
        return data();
      },
      [this](const NodeData& data, SharedSegment memory) { use(data, std::move(memory)); });
}

std::int64_t CsvSource::find_problems(const std::filesystem::path& file, const CsvOptions& options,
                                      const Report& report) {
  CsvSource table;
  table.file_ = file;
  table.options_ = options;
  try {
    table.read_table(&report);
  } catch (const Error& error) {
    report(error);
  }
  return table.records_;
}

std::optional<TableSchema> CsvSource::trained_schema(std::string& origin) const {
  if (!options_.like.empty()) {
    CsvOptions same = options_;
    same.like.clear();
    same.schema = nullptr;
    same.separator =
        separator_of(read_table_head(table_files(options_.like).front()), same.separator);
    same.split.reset();
    same.may_lack_labels = false;
    origin = options_.like.string();
    return CsvSource(options_.like, same).schema_;
  }
  origin = "the training data";
  if (options_.schema) return *options_.schema;
  return std::nullopt;
}

void CsvSource::describe_columns(CsvReader::Meaning& meaning) const {
  auto& [layout, schema, is_known, origin, file, separator, label_words, files] = meaning;
  for (const std::size_t column : layout.plain) {
    TableFeature feature{.columns = {layout.names[column]}};
    if (layout.is_categorical[column]) {
      feature.kind = TableFeature::Kind::categorical;
      feature.unknown_column = options_.unknown_column.value_or(layout.is_inferred_word[column]);
    } else {
      if (layout.is_date[column]) feature.date = DatePart::days;
      feature.scale = options_.scale.value_or(ColumnScale::standard);
      const bool has_mean = options_.infers && feature.scale != ColumnScale::none;
      feature.missing = options_.missing.value_or(
          MissingValues{has_mean ? MissingValues::Rule::mean : MissingValues::Rule::error});
    }
    schema.features.push_back(std::move(feature));
  }
  for (TableFeature& feature : schema.features)
    for (std::string& name : feature.columns) name = layout.names[*layout.find(name)];
  schema.columns = layout.names;
  schema.has_header = layout.has_names;
  schema.label = layout.label ? layout.names[*layout.label] : "";
  schema.targets.clear();
  for (const std::size_t column : layout.targets) schema.targets.push_back(layout.names[column]);
  schema.window = layout.window;
  if (layout.series) schema.window.series = layout.names[*layout.series];
}

std::string CsvSource::whole_text() {
  TableText table = TableText::read(table_files(file_), options_, [this](std::string_view text) {
    return meaning_of(text).layout.has_header;
  });
  if (table.files.size() > 1) files_ = std::move(table.files);
  return std::move(table.text);
}

void CsvSource::read_table(const Report* report) {
  if (const auto files = table_files(file_); files.size() == 1) {
    const InputFile file(files.front());
    const auto mapped = MappedFile::map(file, static_cast<std::size_t>(file.stamp().size));
    if (mapped && is_stored_as_read(mapped->bytes(), options_.encoding)) try {
        read_text(mapped->bytes(), report);
        if (mapped->is_intact()) return;
      } catch (const Error&) {
        if (mapped->is_intact()) throw;
      }
  }
  read_text(whole_text(), report);
}

CsvReader::Meaning CsvSource::meaning_of(std::string_view text) {
  CsvReader::Meaning meaning{.file = file_.string(),
                             .separator = options_.separator,
                             .label_words = options_.label_words,
                             .files = files_};
  std::optional<TableSchema> known = trained_schema(meaning.origin);
  meaning.is_known = is_known_ = known.has_value();
  if (!known && !options_.features.empty()) {
    known = TableSchema::from_file(options_.features.string());
    meaning.origin = options_.features.string();
  }
  meaning.layout =
      CsvLayout::detect(text, meaning.file, options_, known ? &*known : nullptr, meaning.origin);
  if (!is_known_ && options_.infers) {
    CsvRows rows(text, meaning.file, meaning.separator, files_);
    if (meaning.layout.has_header) rows.next();
    infer_columns(meaning.layout, rows, options_);
  }
  if (known) meaning.schema = std::move(*known);
  if (is_known_)
    meaning.schema.window = meaning.layout.window;  // it may have another stride
  else
    describe_columns(meaning);
  return meaning;
}

CsvSource::Text CsvSource::text_of(const std::filesystem::path& file, const CsvOptions& options) {
  CsvSource table;
  table.file_ = file;
  table.options_ = options;
  Text text = {.text = table.whole_text()};
  text.files = table.files_;
  text.layout = table.meaning_of(text.text).layout;
  return text;
}

CsvSource::Contents CsvSource::contents(const std::filesystem::path& file,
                                        const CsvOptions& options) {
  const Text table = text_of(file, options);
  Contents contents{.layout = table.layout};
  CsvRows rows(table.text, file.string(), options.separator, table.files);
  if (contents.layout.has_header) rows.next();
  contents.columns = ColumnCounts::count(rows, contents.layout.names.size());
  for (; rows.next();) ++contents.rows;
  return contents;
}

SplitInfo CsvSource::select_part(CsvReader& reader, const TableWindow& window) const {
  options_.split->split.check();
  if (window.rows > 0)
    throw Error(ErrorCategory::input, file_.string(),
                "expected --validation-data, a table of later rows, with window=: windows of a "
                "random split would share rows",
                "got --validation-split or --test-split");
  return reader.select(*options_.split);
}

void CsvSource::read_text(std::string_view text, const Report* report) {
  CsvReader::Meaning meaning = meaning_of(text);
  auto& [layout, schema, is_known, origin, file, separator, label_words, files] = meaning;
  infers_schema_ =
      !is_known && std::ranges::any_of(schema.features, [](const TableFeature& feature) {
        return !feature.is_learned && (feature.kind == TableFeature::Kind::categorical ||
                                       feature.scale != ColumnScale::none ||
                                       feature.missing.rule == MissingValues::Rule::mean ||
                                       feature.missing.rule == MissingValues::Rule::indicator);
      });
  const bool keeps_bad_rows =
      options_.keeps_bad_rows && options_.schema && schema.window.rows == 0 && !layout.series;
  CsvReader reader(text, meaning, report, keeps_bad_rows);
  if (options_.split) split_ = select_part(reader, schema.window);
  own_ = reader.read();
  records_ = reader.records();
  infers_schema_ = infers_schema_ || (!is_known && schema.labels_are_words);
  if (layout.announced_records > 0 && layout.announced_records != reader.rows_seen())
    throw Error(
        ErrorCategory::data, file,
        fmt::format("expected {} rows, as stated in the first line", layout.announced_records),
        fmt::format("there are {}", reader.rows_seen()));
  if (layout.label && schema.classes == 0 && !own_.labels.empty()) {
    const auto [lowest, highest] = std::ranges::minmax(own_.labels);
    schema.classes = std::int64_t{highest} + 1;
    label_text_ = text_of_labels(lowest, highest);
  }
  schema.left_out = layout.left_out();
  for (const std::size_t column : layout.unnamed)
    if (std::ranges::count(layout.features, column) > 0)
      schema.counts.unnamed.push_back(layout.names[column]);
  for (const std::size_t column : layout.identifiers)
    schema.counts.identifiers.push_back(layout.names[column]);
  for (const std::size_t column : layout.empty) schema.counts.empty.push_back(layout.names[column]);
  schema_ = std::move(schema);
  targets_ = layout.targets.size();
  has_label_ = layout.label.has_value();
  rows_ = {own_.values, own_.targets, own_.labels, own_.ends, own_.members, own_.series};
  find_windows(rows_.series);
  set_info();
}

NodeData CsvSource::data() const {
  nlohmann::json problems = nlohmann::json::array();
  for (const auto& [row, problem] : own_.problems)
    problems.push_back({row, problem.where, problem.expected, problem.actual});
  return {pack_json({{"schema", schema_.to_json()},
                     {"records", records_},
                     {"targets", targets_},
                     {"has_label", has_label_},
                     {"label_text", label_text_},
                     {"is_known", is_known_},
                     {"infers_schema", infers_schema_},
                     {"split", split_ ? split_->records : std::array<std::int64_t, 3>()},
                     {"problems", problems}}),
          {std::as_bytes(rows_.values), std::as_bytes(rows_.targets), std::as_bytes(rows_.labels),
           std::as_bytes(rows_.ends), std::as_bytes(rows_.members), std::as_bytes(rows_.series)}};
}

void CsvSource::use(const NodeData& data, SharedSegment memory) {
  const auto described = unpack_json(data.description);
  schema_ = TableSchema::from_checkpoint(described.at("schema"), file_.string());
  records_ = described.at("records");
  targets_ = described.at("targets");
  has_label_ = described.at("has_label");
  label_text_ = described.at("label_text");
  is_known_ = described.at("is_known");
  infers_schema_ = described.at("infers_schema");
  if (options_.split)
    split_ = {options_.split->split, described.at("split"), has_label_ ? schema_.label : ""};
  rows_ = {data.array<float>(0),        data.array<float>(1),        data.array<std::int32_t>(2),
           data.array<std::int32_t>(3), data.array<std::int32_t>(4), data.array<std::int64_t>(5)};
  find_windows(rows_.series);
  set_info();
  own_ = {};
  for (const auto& problem : described.at("problems"))
    own_.problems.emplace(
        problem.at(0),
        ErrorMessage{.where = problem.at(1), .expected = problem.at(2), .actual = problem.at(3)});
  memory_ = std::move(memory);
}

CsvSource::Piece::Form CsvSource::form_of(const TableFeature& feature) {
  if (feature.kind == TableFeature::Kind::numeric && !feature.has_indicator)
    return Piece::Form::copied;
  if (feature.is_index()) return Piece::Form::index;
  return feature.output == CategoryOutput::multi_hot ? Piece::Form::set : Piece::Form::expanded;
}

void CsvSource::find_windows(std::span<const std::int64_t> series) {
  if (!has_windows()) return;
  const TableWindow& window = schema_.window;
  const bool has_answers = has_label_ || targets_ > 0;
  const std::int64_t span = window.span(has_answers);
  starts_ = WindowStarts(series, span, window.stride);
  if (starts_.size() > 0) return;
  throw Error(ErrorCategory::data, file_.string(),
              fmt::format("expected at least {} rows{} for window={}{}", span,
                          window.series.empty() ? "" : " of a series", window.rows,
                          has_answers ? fmt::format(", horizon={} and steps={}", window.horizon,
                                                    window.steps)
                                      : ""),
              window.series.empty() ? fmt::format("there are {}", records_)
                                    : fmt::format("got {} series with fewer", series.size()));
}

void CsvSource::set_info() {
  pieces_.clear();
  std::size_t width = 0;
  for (std::size_t i = 0; i < schema_.features.size(); ++i) {
    const TableFeature& feature = schema_.features[i];
    const Piece piece = {form_of(feature), i, width, static_cast<std::size_t>(feature.width())};
    if (piece.form == Piece::Form::copied && !pieces_.empty() &&
        pieces_.back().form == Piece::Form::copied)
      pieces_.back().width += piece.width;
    else
      pieces_.push_back(piece);
    width += piece.width;
  }
  info_.spec = describe_samples(width);
  info_.size = has_windows() ? starts_.size() : records_;
  info_.preparation = schema_.preparation() + schema_.window.preparation();
  if (split_) {
    info_.preparation += split_->split.preparation(options_.split->part);
    info_.split = std::make_shared<const SplitInfo>(*split_);
  }
  info_.description = file_.string() + label_text_ +
                      (starts_.skipped() > 0 ? fmt::format(", {} of {} series too short",
                                                           starts_.skipped(), rows_.series.size())
                                             : "") +
                      info_.preparation;
  info_.class_names = schema_.class_names;
  info_.counts_classes = schema_.class_names.empty() && !is_known_;
  info_.feature_names = feature_names();
  info_.target_names = target_names();
  info_.table = std::make_shared<const TableSchema>(schema_);
}

SampleSpec CsvSource::describe_samples(std::size_t width) const {
  SampleSpec spec;
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(width)};
  std::vector<std::int64_t> shape_of_index;
  if (has_windows()) {
    shape.insert(shape.begin(), schema_.window.rows);
    shape_of_index = {schema_.window.rows};
  }
  if (has_label_)
    spec = SampleSpec::classification(shape, schema_.classes);
  else if (targets_ > 0)
    spec = SampleSpec::regression(shape, static_cast<std::int64_t>(targets_) * target_rows());
  else
    spec = {.inputs = SampleSpec::classification(shape, 1).inputs, .targets = {}};
  if (width == 0 && !schema_.features.empty()) spec.inputs.clear();
  for (const TableFeature& feature : schema_.features)
    if (feature.is_index())
      spec.inputs.push_back({.name = names_of(feature).front(),
                             .type = ElementType::int32,
                             .shape = shape_of_index,
                             .classes = feature.categories()});
  return spec;
}

std::vector<std::string> CsvSource::feature_names() const {
  std::vector<std::string> names;
  for (const TableFeature& feature : schema_.features) {
    if (feature.is_index()) continue;
    const std::vector<std::string> more = names_of(feature);
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

std::vector<std::string> CsvSource::target_names() const {
  if (target_rows() == 1) return schema_.targets;
  std::vector<std::string> names;
  for (std::int64_t step = 0; step < target_rows(); ++step)
    for (const std::string& target : schema_.targets)
      names.push_back(fmt::format("{}+{}", target, schema_.window.horizon + step));
  return names;
}

void CsvSource::read(std::int64_t record_id, Sample& sample) const {
  if (const auto problem = own_.problems.find(record_id); problem != own_.problems.end())
    throw Error(ErrorCategory::data, problem->second);
  const auto first = static_cast<std::size_t>(has_windows() ? starts_.row(record_id) : record_id);
  const std::span<float> features = sample.features();
  if (pieces_.size() == 1 && pieces_.front().form == Piece::Form::copied) {
    std::ranges::copy(rows_.values.subspan(first * pieces_.front().width, features.size()),
                      features.begin());
  } else if (!has_windows()) {
    read_row(first, features, 0, sample);
  } else {
    const auto rows = static_cast<std::size_t>(schema_.window.rows);
    const std::size_t width = features.size() / rows;
    for (std::size_t i = 0; i < rows; ++i)
      read_row(first + i, features.subspan(i * width, width), i, sample);
  }
  const std::size_t target_row = first + static_cast<std::size_t>(target_offset());
  if (targets_ > 0)
    std::ranges::copy(rows_.targets.subspan(target_row * targets_, sample.values().size()),
                      sample.values().begin());
  if (has_label_) sample.label() = rows_.labels[target_row];
}

void CsvSource::read_row(std::size_t row, std::span<float> features, std::size_t position,
                         Sample& sample) const {
  const std::size_t stride = schema_.features.size();
  const std::span<const float> stored = rows_.values.subspan(row * stride, stride);
  std::size_t index = features.empty() ? 0 : 1;  // index of the next int32 input
  for (const auto& [form, first, offset, width] : pieces_) {
    switch (form) {
      case Piece::Form::copied:
        std::copy_n(&stored[first], width, &features[offset]);
        break;
      case Piece::Form::index:
        sample.inputs[index++].as<std::int32_t>()[position] =
            static_cast<std::int32_t>(stored[first]);
        break;
      case Piece::Form::set:
        mark_set(static_cast<std::size_t>(stored[first]), features.subspan(offset, width));
        break;
      case Piece::Form::expanded:
        expand(schema_.features[first], stored[first], features.subspan(offset, width));
        break;
    }
  }
}

namespace {

/// Prefetches the cache lines of `values`, including a partial last one.
template <typename T>
void prefetch_lines(std::span<const T> values) {
  constexpr std::size_t kLineBytes = 64;
  const std::span<const std::byte> bytes = std::as_bytes(values);
  for (std::size_t i = 0; i < bytes.size(); i += kLineBytes) __builtin_prefetch(&bytes[i]);
  if (!bytes.empty()) __builtin_prefetch(&bytes.back());
}

}  // namespace

/// Does not prefetch the members of its sets, whose position is known only after the row has been
/// read.
void CsvSource::prefetch(std::int64_t record_id) const {
  const auto first = static_cast<std::size_t>(has_windows() ? starts_.row(record_id) : record_id);
  const std::size_t rows = has_windows() ? static_cast<std::size_t>(schema_.window.rows) : 1;
  const std::size_t stride = schema_.features.size();
  const std::size_t target_row = first + static_cast<std::size_t>(target_offset());
  prefetch_lines(rows_.values.subspan(first * stride, rows * stride));
  if (targets_ > 0)
    prefetch_lines(rows_.targets.subspan(target_row * targets_,
                                         targets_ * static_cast<std::size_t>(target_rows())));
  if (has_label_) prefetch_lines(rows_.labels.subspan(target_row, 1));
}

void CsvSource::mark_set(std::size_t set, std::span<float> features) const {
  std::ranges::fill(features, 0.0F);
  const std::int32_t begin = set == 0 ? 0 : rows_.ends[set - 1];
  for (std::int32_t i = begin; i < rows_.ends[set]; ++i)
    features[static_cast<std::size_t>(rows_.members[static_cast<std::size_t>(i)])] = 1;
}

}  // namespace lockstep::inline v0::data
