#include "lockstep/data/source/csv_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/input_file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/source/index_exchange.h"
#include "lockstep/data/table/transform.h"

namespace lockstep::data {
namespace {

using Words = std::set<std::string, std::less<>>;

/// The rows after the header.
CsvRows records_of(std::string_view text, const std::string& file, const CsvLayout& layout,
                   char separator) {
  CsvRows rows(text, file, separator);
  if (layout.has_header) rows.next();
  return rows;
}

void check_columns(const CsvRows& rows, std::size_t columns) {
  const std::size_t given = rows.fields().size();
  if (given != columns)
    rows.fail(std::min(given, columns) - 1,
              fmt::format("expected {} columns, as in the first row", columns),
              fmt::format("there are {}", given));
}

std::vector<std::string> sorted(const Words& words) { return {words.begin(), words.end()}; }

/// The first few, for messages.
std::string listed(const std::vector<std::string>& words) {
  constexpr std::size_t kShown = 10;
  const auto shown = std::span(words).first(std::min(words.size(), kShown));
  return fmt::format("{}{}", fmt::join(shown, ", "), words.size() > kShown ? "..." : "");
}

/// Whether the field begins as a date: 2026-11-24, 24.11.2026, 11/24/2026 10:30.
bool is_date(std::string_view field) {
  for (const char separator : {'-', '.', '/'}) {
    std::string_view rest = field;
    int numbers = 0;
    for (; numbers < 3; ++numbers) {
      if (numbers > 0 && !rest.starts_with(separator)) break;
      if (numbers > 0) rest.remove_prefix(1);
      const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
      if (digits == 0 || digits > 4) break;
      rest.remove_prefix(digits);
    }
    if (numbers == 3 && (rest.empty() || rest.front() == ' ' || rest.front() == 'T')) return true;
  }
  return false;
}

bool is_word(std::string_view field) {
  return !csv_number<double>(field) && !is_missing(field) && !has_decimal_comma(field) &&
         !is_date(field);
}

/// Calls use(fields) for this row and those after it.
template <typename Use>
void for_rest(CsvRows rows, Use use) {
  try {
    do {
      use(rows.fields());
    } while (rows.next());
  } catch (const Error&) {  // misplaced quotes: nothing after them can be split
  }
}

/// Calls use(word) for the words of a field.
template <typename Use>
void for_words(const TableFeature& feature, std::string_view field, Use use) {
  if (feature.output != CategoryOutput::multi_hot) return use(field);
  while (!field.empty()) {
    const std::size_t end = std::min(field.find(feature.separator), field.size());
    if (end > 0) use(field.substr(0, end));
    field.remove_prefix(std::min(end + 1, field.size()));
  }
}

}  // namespace

CsvSource::CsvSource(const std::filesystem::path& file, const CsvOptions& options)
    : CsvSource(file, options, nullptr) {
  const auto exchange = std::exchange(options_.exchange, {});
  if (exchange.members > 1) InputFile{file_};  // a rank that lacks it says so, even if alone
  read_on_node(
      exchange, "a table",
      [this] {
        read_table();
        return data();
      },
      [this](const NodeData& data, SharedSegment memory) { use(data, std::move(memory)); });
}

CsvSource::CsvSource(const std::filesystem::path& file, const CsvOptions& options,
                     const Report* report)
    : file_(file), options_(options), report_(report) {}

std::int64_t CsvSource::find_problems(const std::filesystem::path& file, const CsvOptions& options,
                                      const Report& report) {
  CsvSource table(file, options, &report);
  try {
    table.read_table();
  } catch (const Error& error) {
    report(error);
  }
  return table.records_;
}

template <typename Use>
void CsvSource::attempt(Use use) const {
  if (report_ == nullptr) return use();
  try {
    use();
  } catch (const Error& error) {
    (*report_)(error);
  }
}

std::optional<TableSchema> CsvSource::trained_schema() {
  if (!options_.like.empty()) {
    CsvOptions same = options_;
    same.like.clear();
    same.schema = nullptr;
    origin_ = options_.like.string();
    return CsvSource(options_.like, same).schema_;
  }
  origin_ = "the training data";
  if (options_.schema) return *options_.schema;
  return std::nullopt;
}

void CsvSource::describe_columns() {
  for (const std::size_t column : layout_.plain) {
    TableFeature feature{.columns = {layout_.names[column]}};
    if (layout_.is_categorical[column]) {
      feature.kind = TableFeature::Kind::categorical;
      feature.unknown_column = options_.unknown_column;
    } else {
      feature.missing = options_.missing;
      feature.scale = options_.scale.value_or(ColumnScale::standard);
    }
    schema_.features.push_back(std::move(feature));
  }
  for (TableFeature& feature : schema_.features)
    for (std::string& name : feature.columns) name = layout_.names[*layout_.find(name)];
  schema_.columns = layout_.names;
  schema_.left_out.clear();
  schema_.label = layout_.label ? layout_.names[*layout_.label] : "";
  schema_.targets.clear();
  for (const std::size_t column : layout_.targets) schema_.targets.push_back(layout_.names[column]);
}

void CsvSource::read_table() {
  const std::string file = file_.string();
  std::optional<TableSchema> known = trained_schema();
  is_known_ = known.has_value();
  if (!known && !options_.features.empty()) {
    known = TableSchema::from_file(options_.features.string());
    origin_ = options_.features.string();
  }
  const std::string text = read_all(InputFile(file_), Compression::none);
  layout_ = CsvLayout::of(text, file, options_, known ? &*known : nullptr, origin_);
  const CsvRows rows = records_of(text, file, layout_, options_.separator);
  if (known) schema_ = std::move(*known);
  if (!is_known_) {
    describe_columns();
    is_self_taught_ = std::ranges::any_of(schema_.features, [](const TableFeature& feature) {
      return !feature.is_learned && (feature.kind == TableFeature::Kind::categorical ||
                                     feature.scale != ColumnScale::none ||
                                     feature.missing.rule == MissingValues::Rule::mean ||
                                     feature.missing.rule == MissingValues::Rule::indicator);
    });
    learn_vocabulary(rows);
    is_self_taught_ = is_self_taught_ || schema_.labels_are_words;
  }
  index_words();
  if (!is_known_)
    raw_.reserve(std::min(text.size(), stride_ * (1 + std::ranges::count(text, '\n'))));
  add_rows(rows);
  if (report_ == nullptr && !is_known_) {
    learn_statistics(schema_, raw_, stride_, file);
    store_rows();
  }
  set_spec();
  if (layout_.announced_records > 0 && layout_.announced_records != records_)
    throw Error(
        ErrorCategory::data, file,
        fmt::format("expected {} rows, as stated in the first line", layout_.announced_records),
        fmt::format("there are {}", records_));
  if (layout_.label && spec_.classes() == 0 && !labels_.empty()) {
    const auto [lowest, highest] = std::ranges::minmax(labels_);
    spec_.targets.front().classes = schema_.classes = std::int64_t{highest} + 1;
    label_text_ = text_of_labels(lowest, highest);
  }
  table_ = std::make_shared<const TableSchema>(schema_);
  rows_ = {values_, targets_, labels_};
  places_.clear();
  class_places_.clear();
}

NodeData CsvSource::data() const {
  std::string bytes;
  nlohmann::json::to_cbor({{"schema", schema_.to_json()},
                           {"records", records_},
                           {"targets", layout_.targets.size()},
                           {"has_label", layout_.label.has_value()},
                           {"label_text", label_text_},
                           {"is_known", is_known_},
                           {"is_self_taught", is_self_taught_}},
                          bytes);
  return {std::move(bytes),
          {std::as_bytes(rows_.values), std::as_bytes(rows_.targets), std::as_bytes(rows_.labels)}};
}

void CsvSource::use(const NodeData& data, SharedSegment memory) {
  const auto described = nlohmann::json::from_cbor(data.description);
  schema_ = TableSchema::from_checkpoint(described.at("schema"), file_.string());
  records_ = described.at("records");
  layout_ = {};  // only their number matters from now on
  layout_.targets.resize(described.at("targets"));
  if (described.at("has_label")) layout_.label = 0;
  label_text_ = described.at("label_text");
  is_known_ = described.at("is_known");
  is_self_taught_ = described.at("is_self_taught");
  set_widths();
  set_spec();
  table_ = std::make_shared<const TableSchema>(schema_);
  const auto numbers = [&]<typename T>(std::span<const T>& array, std::size_t number) {
    const auto& bytes = data.arrays.at(number);
    array = {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  };
  numbers(rows_.values, 0);
  numbers(rows_.targets, 1);
  numbers(rows_.labels, 2);
  values_ = {};
  targets_ = {};
  labels_ = {};
  memory_ = std::move(memory);
}

void CsvSource::learn_vocabulary(CsvRows rows) {
  std::vector<std::pair<TableFeature*, std::size_t>> learners;  // with their columns
  for (TableFeature& feature : schema_.features)
    if (feature.kind == TableFeature::Kind::categorical && !feature.is_learned)
      learners.emplace_back(&feature, *layout_.find(feature.columns.front()));
  std::vector<Words> words(learners.size());
  Words classes;
  bool labels_are_words = layout_.label.has_value() && layout_.classes.empty();
  // What add_row() finds as well is left to it, so that a report has the order of the rows.
  const auto next = [&] {
    try {
      return rows.next();
    } catch (const Error&) {
      if (report_ == nullptr) throw;
      return false;
    }
  };
  while ((labels_are_words || !learners.empty()) && next()) {
    if (report_ != nullptr && rows.fields().size() != layout_.names.size()) continue;
    check_columns(rows, layout_.names.size());
    const auto add = [&](Words& set, std::size_t column, std::string_view word) {
      if (!set.contains(word)) set.emplace(word);
      if (set.size() <= kMaxValues) return;
      attempt([&] {
        rows.fail(column,
                  fmt::format("expected at most {} different values in the column {}", kMaxValues,
                              layout_.names[column]),
                  fmt::format("\"{}\" is one more", word));
      });
    };
    for (std::size_t i = 0; i < learners.size(); ++i) {
      const auto& [feature, column] = learners[i];
      for_words(*feature, rows.fields()[column],
                [&](std::string_view word) { add(words[i], column, word); });
    }
    if (!labels_are_words) continue;
    const std::size_t label = *layout_.label;
    const std::string_view field = rows.fields()[label];
    if (!layout_.is_categorical[label] && csv_number<double>(field))
      labels_are_words = false;
    else if (!field.empty())
      add(classes, label, field);
    else if (report_ == nullptr)
      rows.fail(label, "expected a class", "the field is empty");
  }
  for (std::size_t i = 0; i < learners.size(); ++i) {
    learners[i].first->vocabulary = sorted(words[i]);
    learners[i].first->is_learned = true;
  }
  schema_.labels_are_words = labels_are_words;
  schema_.class_names = labels_are_words ? sorted(classes) : layout_.classes;
  schema_.classes = static_cast<std::int64_t>(schema_.class_names.size());
}

void CsvSource::set_widths() {
  stored_widths_.clear();
  for (const TableFeature& feature : schema_.features)
    stored_widths_.push_back(static_cast<std::size_t>(feature.stored_width()));
  stride_ = std::reduce(stored_widths_.begin(), stored_widths_.end());
}

void CsvSource::index_words() {
  const auto index = [](const std::vector<std::string>& words) {
    Places places;
    for (const std::string& word : words)
      places.emplace(word, static_cast<std::int32_t>(places.size()));
    return places;
  };
  set_widths();
  requires_number_.assign(layout_.names.size(), false);
  for (const TableFeature& feature : schema_.features) {
    std::vector<std::size_t>& columns = sources_.emplace_back();
    for (const std::string& name : feature.columns) columns.push_back(*layout_.find(name));
    if (feature.has_numbers() && feature.missing.rule == MissingValues::Rule::error)
      requires_number_[columns.front()] = true;
    places_.push_back(index(feature.vocabulary));
  }
  for (const std::size_t column : layout_.targets) requires_number_[column] = true;
  if (layout_.label && !schema_.labels_are_words) requires_number_[*layout_.label] = true;
  if (schema_.labels_are_words) class_places_ = index(schema_.class_names);
}

void CsvSource::set_spec() {
  std::int64_t width = 0;
  is_stored_as_read_ = true;
  for (const TableFeature& feature : schema_.features) {
    width += feature.width();
    is_stored_as_read_ =
        is_stored_as_read_ && feature.kind == TableFeature::Kind::numeric && !feature.has_indicator;
  }
  const std::vector<std::int64_t> shape = {width};
  if (layout_.label)
    spec_ = SampleSpec::classification(shape, schema_.classes);
  else if (!layout_.targets.empty())
    spec_ = SampleSpec::regression(shape, std::ssize(layout_.targets));
  else
    spec_ = {.inputs = SampleSpec::classification(shape, 1).inputs, .targets = {}};
  if (width == 0 && !schema_.features.empty()) spec_.inputs.clear();
  for (const TableFeature& feature : schema_.features)
    if (feature.is_index())
      spec_.inputs.push_back({.name = names_of(feature).front(),
                              .type = ElementType::int32,
                              .classes = feature.categories()});
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

void CsvSource::add_rows(CsvRows rows) {
  const bool has_plain_numbers = report_ == nullptr && !schema_.labels_are_words &&
                                 std::ranges::all_of(schema_.features, &TableFeature::is_plain);
  std::vector<double> numbers(has_plain_numbers ? layout_.names.size() : 0);
  const auto has_class = [&] {
    return !layout_.label || class_of(numbers[*layout_.label]).has_value();
  };
  for (;;) {
    if (!has_plain_numbers || !rows.next_numbers(numbers, has_class)) {
      if (!rows.next()) return;
      add_row(rows);
      continue;
    }
    ++records_;
    for (const std::vector<std::size_t>& columns : sources_)
      raw_.push_back(numbers[columns.front()]);
    for (const std::size_t column : layout_.targets)
      targets_.push_back(static_cast<float>(numbers[column]));
    if (layout_.label) labels_.push_back(*class_of(numbers[*layout_.label]));
    if (is_known_) store_rows();
  }
}

void CsvSource::add_row(const CsvRows& rows) {
  ++records_;
  if (rows.fields().size() != layout_.names.size())
    return attempt([&] { check_columns(rows, layout_.names.size()); });
  for (std::size_t i = 0; i < schema_.features.size(); ++i) attempt([&] { add_feature(rows, i); });
  static const TableFeature kTarget;
  for (const std::size_t column : layout_.targets)
    attempt([&] { targets_.push_back(static_cast<float>(number(rows, column, kTarget))); });
  if (layout_.label) attempt([&] { labels_.push_back(class_number(rows)); });
  if (is_known_ && report_ == nullptr) store_rows();
  if (report_ != nullptr) raw_.clear();
}

void CsvSource::add_feature(const CsvRows& rows, std::size_t index) {
  using Kind = TableFeature::Kind;
  const TableFeature& feature = schema_.features[index];
  const std::size_t column = sources_[index].front();
  if (feature.has_numbers()) return raw_.push_back(number(rows, column, feature));
  std::string crossed;
  for (const std::size_t part : sources_[index]) {
    if (feature.kind != Kind::crossed) break;
    if (part != column) crossed += '\x1f';
    crossed += rows.fields()[part];
  }
  const std::string_view field = feature.kind == Kind::crossed ? crossed : rows.fields()[column];
  const auto number_of_word = [&](std::string_view word) {
    return feature.kind == Kind::categorical
               ? category(rows, index, word)
               : static_cast<double>(hash_bucket(word, feature.buckets));
  };
  if (feature.output != CategoryOutput::multi_hot) return raw_.push_back(number_of_word(field));
  const std::size_t begin = raw_.size();
  raw_.resize(begin + static_cast<std::size_t>(feature.categories()));
  for_words(feature, field, [&](std::string_view word) {
    raw_[begin + static_cast<std::size_t>(number_of_word(word))] = 1;
  });
}

void CsvSource::store_rows() {
  if (!is_known_) values_.reserve(raw_.size());
  for (auto value = raw_.begin(); value != raw_.end();)
    for (std::size_t i = 0; i < stored_widths_.size(); ++i)
      for (std::size_t j = 0; j < stored_widths_[i]; ++j)
        values_.push_back(stored_value(schema_.features[i], *value++));
  raw_.clear();
  if (!is_known_) raw_.shrink_to_fit();
}

/// With a report, one message for a column that has more words than numbers from this row on.
void CsvSource::fail_word(const CsvRows& rows, std::size_t column) {
  std::string got = fmt::format("got \"{}\"", rows.fields()[column]);
  if (report_ != nullptr && !words_are_reported_.contains(column)) {
    std::int64_t words = 0;
    std::int64_t numbers = 0;
    for_rest(rows, [&](const std::vector<std::string_view>& fields) {
      if (column >= fields.size() || is_missing(fields[column])) return;
      ++(csv_number<double>(fields[column]) ? numbers : words);
    });
    words_are_reported_[column] = words > numbers;
    if (words > numbers && words > 1)
      got += fmt::format(" ({} fields of this column are not numbers)", words);
  } else if (report_ != nullptr && words_are_reported_[column]) {
    return;
  }
  rows.fail(column, number_text(rows, column), got);
}

/// One message for all missing values of the table. With a report, the others are skipped.
void CsvSource::fail_missing(const CsvRows& rows, std::size_t column, std::string_view expected) {
  if (report_ != nullptr && std::exchange(missing_is_reported_, true)) return;
  std::vector<std::int64_t> counts(layout_.names.size());
  for_rest(rows, [&](const std::vector<std::string_view>& fields) {
    for (std::size_t i = 0; i < std::min(counts.size(), fields.size()); ++i)
      counts[i] += is_missing(fields[i]);
  });
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0 && requires_number_[i])
      missing.push_back(fmt::format("{} in {}", layout_.names[i], counted(counts[i], "row")));
  const bool is_feature = std::ranges::count(layout_.features, column) > 0;
  rows.fail(
      column,
      fmt::format("{} ({}remove these rows, or fill them in)", expected,
                  is_feature ? "missing=mean or missing=indicator allows missing values; or " : ""),
      fmt::format("got \"{}\"; missing: {}", rows.fields()[column], listed(missing)));
}

double CsvSource::number(const CsvRows& rows, std::size_t column, const TableFeature& feature) {
  using Rule = MissingValues::Rule;
  const std::string_view field = rows.fields()[column];
  const bool is_date = feature.date != DatePart::none;
  std::optional<double> given =
      is_date ? date_number(field, feature.date) : csv_number<double>(field);
  constexpr double kTooLarge = 0x1.ffffffp127;  // rounds to an infinite float
  if (!given || !(std::abs(*given) < kTooLarge)) {
    if (is_missing(field)) {
      if (feature.missing.rule == Rule::error) {
        fail_missing(rows, column, is_date ? "expected a date" : "expected a number");
        return 0;
      }
      given = feature.missing.rule == Rule::value ? feature.missing.value
                                                  : std::numeric_limits<double>::quiet_NaN();
    } else if (is_date) {
      rows.fail(column, "expected a date such as 2026-11-24 or 2026-11-24T10:30:00",
                fmt::format("got \"{}\"", field));
    } else if (!given) {
      fail_word(rows, column);
      return 0;
    } else {
      rows.fail(column,
                field.find_first_of("0123456789") == std::string_view::npos
                    ? "expected a finite number"
                    : "expected a number that fits a float",
                fmt::format("got \"{}\"", field));
    }
  }
  const double value = prepared(feature, *given);
  if (feature.log && !std::isfinite(value) && !std::isnan(*given))
    rows.fail(column, "expected a number above -1, for log(1 + x)",
              fmt::format("got \"{}\"", field));
  return value;
}

std::string CsvSource::number_text(const CsvRows& rows, std::size_t column) const {
  const std::string_view field = rows.fields()[column];
  if (has_decimal_comma(field)) return "expected a number with a decimal point instead of a comma";
  if (std::ranges::find(layout_.targets, column) != layout_.targets.end())
    return fmt::format("expected a number, or label={} for a column of classes",
                       layout_.names[column]);
  if (is_date(field))
    return fmt::format(
        "expected a number (drop={0}, or describe the column in a features file: "
        "{{\"column\": \"{0}\", \"date\": \"days\"}})",
        layout_.names[column]);
  std::vector<std::string> words;  // all of the row, so that one run is enough
  for (const std::size_t other : layout_.features)
    if (layout_.is_categorical[other] || is_word(rows.fields()[other]))
      words.push_back(layout_.names[other]);
  return fmt::format("expected a number, or {} of words: categorical={}",
                     words.size() == 1 ? "a column" : "columns", fmt::join(words, ","));
}

double CsvSource::category(const CsvRows& rows, std::size_t index, std::string_view word) const {
  const TableFeature& feature = schema_.features[index];
  const auto place = places_[index].find(word);
  if (place != places_[index].end()) return place->second;
  if (!feature.unknown_column)
    rows.fail(sources_[index].front(),
              fmt::format("expected a value that the column {} of {} has ({}), or unknown=column",
                          feature.columns.front(), origin_, listed(feature.vocabulary)),
              fmt::format("got \"{}\"", word));
  return static_cast<double>(feature.vocabulary.size());
}

std::int32_t CsvSource::class_number(const CsvRows& rows) {
  const std::string_view field = rows.fields()[*layout_.label];
  const std::string given = fmt::format("got \"{}\"", field);
  if (schema_.labels_are_words) {
    const auto place = class_places_.find(field);
    if (place != class_places_.end()) return place->second;
    rows.fail(*layout_.label,
              fmt::format("expected one of the classes {}", listed(schema_.class_names)), given);
  }
  if (is_missing(field)) {
    fail_missing(rows, *layout_.label, "expected a class number");
    return 0;
  }
  const auto number = csv_number<double>(field);
  if (const auto label = number ? class_of(*number) : std::nullopt) return *label;
  const bool is_too_large = schema_.classes > 0 && number && *number >= 0 &&
                            *number == std::floor(*number) && std::isfinite(*number);
  rows.fail(*layout_.label,
            is_too_large ? fmt::format("expected a class number below {}", schema_.classes)
                         : "expected a class number (an integer from 0)",
            given);
}

std::optional<std::int32_t> CsvSource::class_of(double number) const {
  const double classes = schema_.classes > 0
                             ? static_cast<double>(schema_.classes)
                             : static_cast<double>(std::numeric_limits<std::int32_t>::max());
  if (!(number >= 0 && number < classes) || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int32_t>(number);
}

void CsvSource::read(std::int64_t record_id, Sample& sample) const {
  const auto record = static_cast<std::size_t>(record_id);
  std::span<const float> stored = rows_.values.subspan(record * stride_, stride_);
  std::span<float> rest = sample.features();
  std::size_t index = rest.empty() ? 0 : 1;  // of the input
  if (is_stored_as_read_) std::ranges::copy(stored, rest.begin());
  for (std::size_t i = 0; i < schema_.features.size() && !is_stored_as_read_; ++i) {
    const TableFeature& feature = schema_.features[i];
    if (feature.is_index())
      sample.inputs[index++].as<std::int32_t>()[0] = static_cast<std::int32_t>(stored.front());
    else
      expand(feature, stored, rest);
    stored = stored.subspan(stored_widths_[i]);
    rest = rest.subspan(static_cast<std::size_t>(feature.width()));
  }
  const std::size_t targets = layout_.targets.size();
  for (std::size_t i = 0; i < targets; ++i)
    sample.values()[i] = rows_.targets[record * targets + i];
  if (layout_.label) sample.label() = rows_.labels[record];
}

}  // namespace lockstep::data
