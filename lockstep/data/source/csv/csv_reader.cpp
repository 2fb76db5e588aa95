#include "lockstep/data/source/csv/csv_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/data/table/transform.h"

namespace lockstep::inline v0::data {
namespace {

using Kind = TableFeature::Kind;

/// Whether a label is a number; "inf" and "nan" are words among others.
bool is_finite_number(std::string_view field) {
  const auto number = csv_number<double>(field);
  return number && field.find_first_of("0123456789") != std::string_view::npos;
}

/// Whether the numbers are integers that are all different.
bool are_distinct_integers(std::vector<double> numbers) {
  if (!std::ranges::all_of(numbers, [](double number) { return number == std::floor(number); }))
    return false;
  std::ranges::sort(numbers);
  return std::ranges::adjacent_find(numbers) == numbers.end();
}

/// The words for whose numbers keeps() returns true, in alphabetical order; ranks[number] is the
/// position of that word, or one past the last.
template <typename Keeps>
std::vector<std::string> sorted(const WordTable& words, std::vector<std::int32_t>& ranks,
                                Keeps keeps) {
  std::vector<std::int32_t> numbers(words.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  std::erase_if(numbers, [&](std::int32_t number) { return !keeps(number); });
  std::ranges::sort(numbers, {}, [&](std::int32_t number) -> const std::string& {
    return words.words()[static_cast<std::size_t>(number)];
  });
  std::vector<std::string> all;
  ranks.assign(words.size(), static_cast<std::int32_t>(numbers.size()));
  for (const std::int32_t number : numbers) {
    ranks[static_cast<std::size_t>(number)] = static_cast<std::int32_t>(all.size());
    all.push_back(words.words()[static_cast<std::size_t>(number)]);
  }
  return all;
}

/// The number of a class in `classes`, to which it is added.
std::int32_t class_group(WordTable& classes, std::string_view label) {
  const std::int32_t number = classes.find(label);
  return number >= 0 ? number : classes.add(label);
}

WordTable table_of(const std::vector<std::string>& words) {
  WordTable table;
  for (const std::string& word : words) table.add(word);
  return table;
}

}  // namespace

CsvReader::CsvReader(std::string_view text, Meaning& meaning, const Report* report,
                     bool keeps_bad_rows)
    : text_(text), meaning_(meaning), report_(report), keeps_bad_rows_(keeps_bad_rows) {}

CsvRows CsvReader::rows() const {
  CsvRows rows(text_, meaning_.file, meaning_.separator, meaning_.files);
  if (meaning_.layout.has_header) rows.next();
  return rows;
}

SplitInfo CsvReader::select(const SplitSelection& selection) {
  const CsvLayout& layout = meaning_.layout;
  WordTable classes;
  std::vector<std::int32_t> groups;
  for (CsvRows rows = this->rows(); rows.next();) {
    const bool has_class = layout.label && *layout.label < rows.fields().size();
    groups.push_back(has_class ? class_group(classes, rows.fields()[*layout.label]) : 0);
  }
  parts_ = split_records(selection.split, groups);
  part_ = selection.part;
  return count_parts(selection.split, parts_, layout.label ? layout.names[*layout.label] : "",
                     meaning_.file);
}

template <typename Use>
void CsvReader::attempt(Use use) const {
  if (report_ == nullptr) return use();
  try {
    use();
  } catch (const Error& error) {
    (*report_)(error);
  }
}

TableRows CsvReader::read() {
  check_memory();
  index_columns();
  find_kind_of_labels();
  add_rows();
  sort_words();
  TableSchema& schema = meaning_.schema;
  std::int64_t width = 0;
  for (const TableFeature& feature : schema.features) width += feature.width();
  if (width > TableSchema::kMaxFeatures)
    throw Error(ErrorCategory::data, meaning_.file,
                fmt::format("expected at most {} features", TableSchema::kMaxFeatures),
                fmt::format("got {}", width));
  if (report_ == nullptr && !meaning_.is_known) {
    learn_statistics(schema, raw_, meaning_.file);
    find_distinct();
    check_precision(schema, raw_, raw_targets_, meaning_.file);
    raw_targets_ = {};
    rows_.values.reserve(raw_.size());
    use_huge_pages(rows_.values.data(), raw_.size() * sizeof(float));
    store_rows();
    raw_ = {};
  }
  if (report_ == nullptr) count_values();
  gather_series();
  return std::move(rows_);
}

void CsvReader::check_memory() const {
  if (report_ != nullptr) return;
  const auto rows = 1 + std::ranges::count(text_, '\n');
  const std::size_t features = meaning_.schema.features.size();
  const std::size_t bytes = sizeof(float) + (meaning_.is_known ? 0 : sizeof(double));
  const double needed = static_cast<double>(rows) * static_cast<double>(features * bytes);
  const auto available = static_cast<double>(available_host_memory());
  if (needed > available)
    throw Error(ErrorCategory::data, meaning_.file,
                fmt::format("expected {:.1f} GiB of free memory for {} rows of {} numbers",
                            needed / 0x1p30, rows, features),
                fmt::format("{:.1f} GiB are available", available / 0x1p30));
}

void CsvReader::index_columns() {
  auto& [layout, schema, is_known, origin, file, separator, label_words, files] = meaning_;
  requires_value_.assign(layout.names.size(), false);
  columns_.reserve(schema.features.size());
  vocabularies_.reserve(schema.features.size());
  for (const TableFeature& feature : schema.features) {
    std::vector<std::size_t>& columns = columns_.emplace_back();
    for (const std::string& name : feature.columns) columns.push_back(*layout.find(name));
    if (feature.has_numbers() && feature.missing.rule == MissingValues::Rule::error)
      requires_value_[columns.front()] = true;
    vocabularies_.push_back(
        {.words = table_of(feature.vocabulary),
         .is_learned = is_known || feature.is_learned || feature.kind != Kind::categorical,
         .groups_rare = feature.unknown_column && layout.is_inferred_word[columns.front()]});
  }
  for (const std::size_t column : layout.targets) requires_value_[column] = true;
  if (layout.label) requires_value_[*layout.label] = true;
  schema.counts = {};
  schema.counts.missing.resize(schema.features.size());
  if (is_known) return;
  raw_.reserve(std::min<std::size_t>(
      text_.size(), schema.features.size() * (1 + std::ranges::count(text_, '\n'))));
  use_huge_pages(raw_.data(), raw_.capacity() * sizeof(double));
}

void CsvReader::find_kind_of_labels() {
  auto& [layout, schema, is_known, origin, file, separator, label_words, files] = meaning_;
  if (!layout.label) return;
  const std::size_t column = *layout.label;
  if (!is_known) {
    schema.class_names = layout.classes;
    schema.classes = std::ssize(layout.classes);
    learns_classes_ = layout.classes.empty();
    CsvRows rows = this->rows();
    bool is_found = may_be_any_word() || !learns_classes_;
    try {
      while (!is_found && rows.next()) {
        if (column >= rows.fields().size() || is_missing(rows.fields()[column])) continue;
        is_found = true;
        learns_classes_ = !is_finite_number(rows.fields()[column]);
      }
    } catch (const Error&) {  // found again by add_rows()
    }
    schema.labels_are_words = learns_classes_;
  }
  if (schema.labels_are_words) classes_ = table_of(schema.class_names);
}

bool CsvReader::may_be_any_word() const {
  return meaning_.layout.is_categorical[*meaning_.layout.label] || !meaning_.label_words.empty();
}

bool CsvReader::lacks_label(std::string_view field) const {
  return is_missing(field) &&
         std::ranges::find(meaning_.label_words, field) == meaning_.label_words.end();
}

bool CsvReader::can_be_plain() {
  const auto& [layout, schema, is_known, origin, file, separator, label_words, files] = meaning_;
  if (report_ != nullptr) return false;
  enum class Use { none, number, word };
  std::vector<Use> uses(layout.names.size(), Use::none);
  bool agree = true;
  const auto is_used = [&](std::size_t column, Use use) {
    agree = agree && (uses[column] == Use::none || uses[column] == use);
    uses[column] = use;
  };
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    agree = agree && schema.features[i].date == DatePart::none;
    for (const std::size_t column : columns_[i])
      is_used(column, schema.features[i].has_numbers() ? Use::number : Use::word);
  }
  for (const std::size_t column : layout.targets) is_used(column, Use::number);
  if (layout.label) is_used(*layout.label, schema.labels_are_words ? Use::word : Use::number);
  for (std::size_t column = 0; column < uses.size(); ++column)
    plain_.push_back(uses[column] != Use::number ? PlainField::word
                     : requires_value_[column]   ? PlainField::number
                                                 : PlainField::number_or_empty);
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (plain_[columns_[i].front()] == PlainField::number_or_empty) optional_.push_back(i);
  return agree;
}

void CsvReader::add_rows() {
  CsvRows rows = this->rows();
  const bool can_be_plain = this->can_be_plain();
  std::vector<double> numbers(plain_.size());
  std::vector<std::string_view> words(plain_.size());
  while (true) {
    const bool is_skipped = skips_row();
    if (can_be_plain && rows.next_plain(plain_, numbers, words,
                                        [&] { return is_skipped || add_plain(numbers, words); })) {
      ++rows_seen_;
      continue;
    }
    bool is_read = false;
    attempt([&] { is_read = rows.next(); });  // rows after misplaced quotes cannot be split
    if (!is_read) return;
    ++rows_seen_;
    if (is_skipped) continue;
    if (keeps_bad_rows_)
      add_row_or_problem(rows);
    else
      add_row(rows);
  }
}

void CsvReader::add_row_or_problem(const CsvRows& rows) {
  try {
    return add_row(rows);
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::data) throw;
    rows_.problems.emplace(records_ - 1, error.message());
  }
  raw_.clear();
  const auto count = static_cast<std::size_t>(records_);
  rows_.values.resize(count * columns_.size());
  rows_.targets.resize(count * meaning_.layout.targets.size());
  if (meaning_.layout.label) rows_.labels.resize(count);
}

bool CsvReader::add_plain(std::span<const double> numbers,
                          std::span<const std::string_view> words) {
  const auto& [layout, schema, is_known, origin, file, separator, label_words, files] = meaning_;
  std::int32_t label = 0;
  if (layout.label)
    label = schema.labels_are_words ? find_class(words[*layout.label])
                                    : class_of(numbers[*layout.label]);
  const std::size_t begin = raw_.size();
  bool fits = label >= 0 && !(layout.series && is_missing(words[*layout.series]));
  for (std::size_t i = 0; i < columns_.size() && fits; ++i) {
    const TableFeature& feature = schema.features[i];
    if (feature.has_numbers()) {
      double given = numbers[columns_[i].front()];
      if (std::isnan(given) && feature.missing.rule == MissingValues::Rule::value)
        given = feature.missing.value;
      raw_.push_back(feature.is_plain() ? given : prepared(feature, given));
      fits = std::isfinite(raw_.back()) || std::isnan(given);
    } else {
      raw_.push_back(value_of_words(i, words));
      fits = raw_.back() >= 0;
    }
  }
  if (!fits) {
    raw_.resize(begin);
    return false;
  }
  for (const std::size_t i : optional_)
    if (std::isnan(numbers[columns_[i].front()])) ++meaning_.schema.counts.missing[i];
  for (const std::size_t column : layout.targets) add_target(numbers[column]);
  if (layout.label) rows_.labels.push_back(label);
  if (layout.series) series_of_rows_.push_back(series_.add(words[*layout.series]));
  ++records_;
  if (is_known) store_rows();
  return true;
}

void CsvReader::add_row(const CsvRows& rows) {
  ++records_;
  const CsvLayout& layout = meaning_.layout;
  if (rows.fields().size() != layout.names.size())
    return attempt([&] { rows.require_fields(layout.names.size()); });
  for (std::size_t i = 0; i < columns_.size(); ++i) attempt([&] { add_feature(rows, i); });
  static const TableFeature plain_target;
  for (const std::size_t column : layout.targets) {
    const bool is_reported = report_ != nullptr && !is_missing(rows.fields()[column]) &&
                             std::ranges::count(layout.features, column) > 0;
    if (is_reported) continue;  // as a feature
    attempt([&] { add_target(number(rows, column, plain_target)); });
  }
  if (layout.label) attempt([&] { rows_.labels.push_back(class_number(rows)); });
  if (layout.series) attempt([&] { series_of_rows_.push_back(series_of(rows)); });
  if (report_ != nullptr)
    raw_.clear();
  else if (meaning_.is_known)
    store_rows();
}

void CsvReader::add_feature(const CsvRows& rows, std::size_t index) {
  const TableFeature& feature = meaning_.schema.features[index];
  if (feature.has_numbers()) {
    const std::size_t column = columns_[index].front();
    raw_.push_back(number(rows, column, feature));
    if (is_missing(rows.fields()[column])) ++meaning_.schema.counts.missing[index];
    return;
  }
  const double value = value_of_words(index, rows.fields());
  if (value < 0) fail_category(rows, index);
  raw_.push_back(value);
}

double CsvReader::number(const CsvRows& rows, std::size_t column, const TableFeature& feature) {
  using Rule = MissingValues::Rule;
  const std::string_view field = rows.fields()[column];
  const bool is_date = feature.date != DatePart::none;
  std::optional<double> given =
      is_date ? date_number(field, feature.date) : csv_number<double>(field);
  if (!given || !fits_float(*given)) {
    if (is_missing(field)) {
      if (feature.missing.rule == Rule::error) {
        fail_missing(rows, column, is_date ? "expected a date" : "expected a number");
        return 0;
      }
      given = feature.missing.rule == Rule::value ? feature.missing.value
                                                  : std::numeric_limits<double>::quiet_NaN();
    } else if (is_date) {
      fail_date(rows, column);
    } else if (!given || counts(column).kind() == ColumnCounts::Kind::words) {
      fail_word(rows, column);  // "inf" may be one
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

double CsvReader::value_of_words(std::size_t index, std::span<const std::string_view> fields) {
  const TableFeature& feature = meaning_.schema.features[index];
  const std::vector<std::size_t>& columns = columns_[index];
  if (feature.kind == Kind::crossed) {
    std::string crossed(fields[columns.front()]);
    for (const std::size_t column : std::span(columns).subspan(1))
      crossed.append(1, '\x1f').append(fields[column]);
    return category(index, crossed);
  }
  const std::string_view field = fields[columns.front()];
  return feature.output == CategoryOutput::multi_hot ? set_of_categories(index, field)
                                                     : category(index, field);
}

std::int32_t CsvReader::category(std::size_t index, std::string_view word) {
  const TableFeature& feature = meaning_.schema.features[index];
  if (feature.kind != Kind::categorical)
    return static_cast<std::int32_t>(hash_bucket(word, feature.buckets));
  auto& [words, is_learned, groups_rare, rows, fields, sets, ranks] = vocabularies_[index];
  std::int32_t number = words.find(word);
  if (number < 0 && is_missing(word)) number = words.find(word = kMissingWord);
  if (number < 0 && !is_learned && words.size() < kMaxValues) {
    number = words.add(word);
    if (groups_rare) rows.push_back(0);
  }
  if (number >= 0 && !rows.empty()) ++rows[static_cast<std::size_t>(number)];
  if (number >= 0) return number;
  return is_learned && feature.unknown_column ? static_cast<std::int32_t>(words.size()) : -1;
}

std::int32_t CsvReader::set_of_categories(std::size_t index, std::string_view field) {
  Vocabulary& vocabulary = vocabularies_[index];
  const std::int32_t number = vocabulary.fields.find(field);
  if (number >= 0) return vocabulary.sets[static_cast<std::size_t>(number)];
  std::vector<std::int32_t> members;
  for_words(meaning_.schema.features[index].separator, field,
            [&](std::string_view word) { members.push_back(category(index, word)); });
  std::ranges::sort(members);
  if (rows_.ends.size() == kMaxSets || (!members.empty() && members.front() < 0)) return -1;
  const auto end = std::unique(members.begin(), members.end());
  rows_.members.insert(rows_.members.end(), members.begin(), end);
  const auto set = static_cast<std::int32_t>(rows_.ends.size());
  rows_.ends.push_back(static_cast<std::int32_t>(rows_.members.size()));
  owners_.push_back(index);
  vocabulary.fields.add(field);
  vocabulary.sets.push_back(set);
  return set;
}

std::int32_t CsvReader::class_number(const CsvRows& rows) {
  const TableSchema& schema = meaning_.schema;
  const std::size_t column = *meaning_.layout.label;
  const std::string_view field = rows.fields()[column];
  const std::string given = fmt::format("got \"{}\"", field);
  if (schema.labels_are_words) {
    const std::int32_t number = find_class(field);
    if (number >= 0) return number;
    fail_class(rows, column);
    return 0;
  }
  if (is_missing(field)) {
    fail_missing(rows, column, "expected a class number");
    return 0;
  }
  const auto number = csv_number<double>(field);
  const std::int32_t label = number ? class_of(*number) : -1;
  if (label >= 0) return label;
  const bool is_too_large = schema.classes > 0 && number && *number >= 0 &&
                            *number == std::floor(*number) && std::isfinite(*number);
  rows.fail(column,
            is_too_large ? fmt::format("expected a class number below {}", schema.classes)
                         : "expected a class number (an integer from 0)",
            given);
}

std::int32_t CsvReader::find_class(std::string_view word) {
  const std::int32_t number = classes_.find(word);
  if (number >= 0 || !learns_classes_ || lacks_label(word) || classes_.size() == kMaxValues)
    return number;
  return may_be_any_word() || !is_finite_number(word) ? classes_.add(word) : -1;
}

std::int32_t CsvReader::class_of(double number) const {
  const std::int64_t classes = meaning_.schema.classes;
  const double end = classes > 0 ? static_cast<double>(classes)
                                 : static_cast<double>(std::numeric_limits<std::int32_t>::max());
  if (!(number >= 0 && number < end) || number != std::floor(number)) return -1;
  return static_cast<std::int32_t>(number);
}

std::int32_t CsvReader::series_of(const CsvRows& rows) {
  const std::size_t column = *meaning_.layout.series;
  const std::string_view name = rows.fields()[column];
  if (is_missing(name))
    rows.fail(column, "expected the name of a series", fmt::format("got \"{}\"", name));
  return series_.add(name);
}

namespace {

/// Reorders the `order.size()` parts of `values`: part order[i] becomes part i.
template <typename T>
void reorder(std::vector<T>& values, const std::vector<std::size_t>& order) {
  const std::size_t width = values.size() / order.size();
  std::vector<T> moved;
  moved.reserve(values.size());
  for (const std::size_t from : order) {
    const auto part = std::span<const T>(values).subspan(from * width, width);
    moved.insert(moved.end(), part.begin(), part.end());
  }
  values = std::move(moved);
}

}  // namespace

void CsvReader::gather_series() {
  if (!meaning_.layout.series) {
    rows_.series = {records_};
    return;
  }
  rows_.series.assign(series_.size(), 0);
  for (const std::int32_t number : series_of_rows_)
    ++rows_.series[static_cast<std::size_t>(number)];
  std::partial_sum(rows_.series.begin(), rows_.series.end(), rows_.series.begin());
  if (report_ != nullptr || std::ranges::is_sorted(series_of_rows_)) return;
  std::vector<std::size_t> order(series_of_rows_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t row) { return series_of_rows_[row]; });
  reorder(rows_.values, order);
  reorder(rows_.targets, order);
  reorder(rows_.labels, order);
}

void CsvReader::add_target(double number) {
  rows_.targets.push_back(static_cast<float>(number));
  if (report_ == nullptr && !meaning_.is_known) raw_targets_.push_back(number);
}

void CsvReader::store_rows() {
  const std::vector<TableFeature>& features = meaning_.schema.features;
  for (auto value = raw_.begin(); value != raw_.end();)
    for (std::size_t i = 0; i < features.size(); ++i, ++value) {
      const std::vector<std::int32_t>& ranks = vocabularies_[i].ranks;
      const bool is_set = features[i].output == CategoryOutput::multi_hot;
      rows_.values.push_back(ranks.empty() || is_set
                                 ? stored_value(features[i], *value)
                                 : static_cast<float>(ranks[static_cast<std::size_t>(*value)]));
    }
  raw_.clear();
}

/// For most columns, the first numbers suffice.
void CsvReader::find_distinct() {
  constexpr std::size_t kFirst = 1000;
  TableSchema& schema = meaning_.schema;
  const std::size_t stride = schema.features.size();
  const auto rows = static_cast<std::size_t>(records_);
  if (records_ < kDistinctRows) return;
  const auto numbers_of = [&](std::size_t feature, std::size_t count) {
    std::vector<double> numbers(count);
    for (std::size_t row = 0; row < count; ++row) numbers[row] = raw_[row * stride + feature];
    return numbers;
  };
  for (std::size_t i = 0; i < stride; ++i) {
    const TableFeature& feature = schema.features[i];
    const bool is_distinct =
        feature.kind == Kind::categorical
            ? !vocabularies_[i].ranks.empty() && feature.vocabulary.size() == rows
            : feature.is_plain() && are_distinct_integers(numbers_of(i, std::min(rows, kFirst))) &&
                  are_distinct_integers(numbers_of(i, rows));
    std::vector<std::string>& distinct = schema.counts.distinct;
    if (is_distinct && std::ranges::find(distinct, feature.columns.front()) == distinct.end())
      distinct.push_back(feature.columns.front());
  }
  if (learns_classes_ && schema.class_names.size() == rows)
    schema.counts.distinct.push_back(meaning_.layout.names[*meaning_.layout.label]);
}

void CsvReader::count_values() {
  TableSchema& schema = meaning_.schema;
  TableCounts& counts = schema.counts;
  const std::size_t stride = schema.features.size();
  counts.rows = records_;
  counts.unknown.resize(stride);
  for (std::size_t i = 0; i < stride; ++i) {
    const TableFeature& feature = schema.features[i];
    if (feature.kind != Kind::categorical) continue;
    const auto unknown = static_cast<std::int32_t>(feature.vocabulary.size());
    const std::int32_t missing = vocabularies_[i].words.find(kMissingWord);
    const auto rank = [&](std::int32_t number) {
      const auto& ranks = vocabularies_[i].ranks;
      return number < 0 || ranks.empty() ? number : ranks[static_cast<std::size_t>(number)];
    };
    if (!feature.unknown_column && missing < 0) continue;
    const bool is_set = feature.output == CategoryOutput::multi_hot;
    for (std::size_t row = 0; row * stride < rows_.values.size(); ++row) {
      if (rows_.problems.contains(static_cast<std::int64_t>(row))) continue;
      const auto value = static_cast<std::int32_t>(rows_.values[row * stride + i]);
      const auto has = [&](std::int32_t category) {
        if (!is_set) return value == category;
        const auto members = members_of(static_cast<std::size_t>(value));
        return std::ranges::find(members, category) != members.end();
      };
      if (feature.unknown_column && has(unknown)) ++counts.unknown[i];
      if (missing >= 0 && has(rank(missing))) ++counts.missing[i];
    }
  }
  if (rows_.labels.empty() || schema.classes > static_cast<std::int64_t>(kMaxValues)) return;
  const std::int64_t classes =
      schema.classes > 0 ? schema.classes : std::int64_t{std::ranges::max(rows_.labels)} + 1;
  if (classes > static_cast<std::int64_t>(kMaxValues)) return;
  counts.classes.resize(static_cast<std::size_t>(classes));
  for (std::size_t row = 0; row < rows_.labels.size(); ++row)
    if (!rows_.problems.contains(static_cast<std::int64_t>(row)))
      ++counts.classes[static_cast<std::size_t>(rows_.labels[row])];
}

std::span<const std::int32_t> CsvReader::members_of(std::size_t set) const {
  const std::size_t begin = set == 0 ? 0 : static_cast<std::size_t>(rows_.ends[set - 1]);
  return std::span(rows_.members).subspan(begin, static_cast<std::size_t>(rows_.ends[set]) - begin);
}

void CsvReader::sort_words() {
  TableSchema& schema = meaning_.schema;
  for (std::size_t i = 0; i < schema.features.size(); ++i) {
    if (vocabularies_[i].is_learned) continue;
    Vocabulary& vocabulary = vocabularies_[i];
    const bool has_rare = !vocabulary.rows.empty() && records_ >= kDistinctRows;
    schema.features[i].vocabulary =
        sorted(vocabulary.words, vocabulary.ranks, [&](std::int32_t word) {
          const auto number = static_cast<std::size_t>(word);
          return !has_rare || vocabulary.rows[number] > 1 ||
                 vocabulary.words.words()[number] == kMissingWord;
        });
    schema.features[i].is_learned = true;
  }
  for (std::size_t set = 0; set < owners_.size(); ++set) {
    const std::vector<std::int32_t>& ranks = vocabularies_[owners_[set]].ranks;
    const auto begin = rows_.members.begin() + (set == 0 ? 0 : rows_.ends[set - 1]);
    for (auto member = begin; !ranks.empty() && member != rows_.members.begin() + rows_.ends[set];
         ++member)
      *member = ranks[static_cast<std::size_t>(*member)];
  }
  if (!learns_classes_) return;
  std::vector<std::int32_t> ranks;
  schema.class_names = sorted(classes_, ranks, [](std::int32_t) { return true; });
  schema.classes = std::ssize(schema.class_names);
  if (report_ != nullptr) return;  // labels of rows with problems have no class
  for (std::int32_t& label : rows_.labels) label = ranks[static_cast<std::size_t>(label)];
}

}  // namespace lockstep::inline v0::data
