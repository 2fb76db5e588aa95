#include "lockstep/data/source/csv_reader.h"

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

namespace lockstep::data {
namespace {

using Kind = TableFeature::Kind;

/// Sets are stored as floats, which have all integers up to here.
constexpr std::size_t kMaxSets = std::size_t{1} << 24;

/// The first few, for messages.
std::string listed(const std::vector<std::string>& words) {
  constexpr std::size_t kShown = 10;
  const auto shown = std::span(words).first(std::min(words.size(), kShown));
  return fmt::format("{}{}", fmt::join(shown, ", "), words.size() > kShown ? "..." : "");
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

/// Calls use(word) for the words of a multi-hot field.
template <typename Use>
void for_words(char separator, std::string_view field, Use use) {
  while (!field.empty()) {
    const std::size_t end = std::min(field.find(separator), field.size());
    if (end > 0) use(field.substr(0, end));
    field.remove_prefix(std::min(end + 1, field.size()));
  }
}

/// The words in alphabetical order; places[number] is the place of the word of that number.
std::vector<std::string> sorted(const WordTable& words, std::vector<std::int32_t>& places) {
  std::vector<std::int32_t> numbers(words.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  std::ranges::sort(numbers, {}, [&](std::int32_t number) -> const std::string& {
    return words.words()[static_cast<std::size_t>(number)];
  });
  std::vector<std::string> all;
  places.resize(numbers.size());
  for (const std::int32_t number : numbers) {
    places[static_cast<std::size_t>(number)] = static_cast<std::int32_t>(all.size());
    all.push_back(words.words()[static_cast<std::size_t>(number)]);
  }
  return all;
}

WordTable table_of(const std::vector<std::string>& words) {
  WordTable table;
  for (const std::string& word : words) table.add(word);
  return table;
}

}  // namespace

CsvReader::CsvReader(std::string_view text, Meaning& meaning, const Report* report)
    : text_(text), meaning_(meaning), report_(report) {}

CsvRows CsvReader::rows() const {
  CsvRows rows(text_, meaning_.file, meaning_.separator);
  if (meaning_.layout.has_header) rows.next();
  return rows;
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
    kept_.values.reserve(raw_.size());
    use_huge_pages(kept_.values.data(), raw_.size() * sizeof(float));
    store_rows();
    raw_ = {};
  }
  gather_series();
  return std::move(kept_);
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
  const auto& [layout, schema, is_known, origin, file, separator] = meaning_;
  requires_number_.assign(layout.names.size(), false);
  for (const TableFeature& feature : schema.features) {
    std::vector<std::size_t>& columns = columns_.emplace_back();
    for (const std::string& name : feature.columns) columns.push_back(*layout.find(name));
    if (feature.has_numbers() && feature.missing.rule == MissingValues::Rule::error)
      requires_number_[columns.front()] = true;
    vocabularies_.push_back(
        {.words = table_of(feature.vocabulary),
         .is_learned = is_known || feature.is_learned || feature.kind != Kind::categorical});
  }
  for (const std::size_t column : layout.targets) requires_number_[column] = true;
  if (is_known) return;
  raw_.reserve(std::min<std::size_t>(
      text_.size(), schema.features.size() * (1 + std::ranges::count(text_, '\n'))));
  use_huge_pages(raw_.data(), raw_.capacity() * sizeof(double));
}

void CsvReader::find_kind_of_labels() {
  auto& [layout, schema, is_known, origin, file, separator] = meaning_;
  if (!layout.label) return;
  const std::size_t column = *layout.label;
  if (!is_known) {
    schema.class_names = layout.classes;
    schema.classes = std::ssize(layout.classes);
    learns_classes_ = layout.classes.empty();
    CsvRows rows = this->rows();
    bool is_found = layout.is_categorical[column] || !learns_classes_;
    try {
      while (!is_found && rows.next()) {
        if (column >= rows.fields().size() || is_missing(rows.fields()[column])) continue;
        is_found = true;
        learns_classes_ = !csv_number<double>(rows.fields()[column]);
      }
    } catch (const Error&) {  // found again by add_rows()
    }
    schema.labels_are_words = learns_classes_;
  }
  if (schema.labels_are_words)
    classes_ = table_of(schema.class_names);
  else
    requires_number_[column] = true;
}

bool CsvReader::can_be_plain() {
  const auto& [layout, schema, is_known, origin, file, separator] = meaning_;
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
                     : requires_number_[column]  ? PlainField::number
                                                 : PlainField::number_or_empty);
  return agree;
}

void CsvReader::add_rows() {
  CsvRows rows = this->rows();
  const bool can_be_plain = this->can_be_plain();
  std::vector<double> numbers(plain_.size());
  std::vector<std::string_view> words(plain_.size());
  while (true) {
    if (can_be_plain &&
        rows.next_plain(plain_, numbers, words, [&] { return add_plain(numbers, words); }))
      continue;
    bool is_read = false;
    attempt([&] { is_read = rows.next(); });  // nothing after misplaced quotes can be split
    if (!is_read) return;
    add_row(rows);
  }
}

bool CsvReader::add_plain(std::span<const double> numbers,
                          std::span<const std::string_view> words) {
  const auto& [layout, schema, is_known, origin, file, separator] = meaning_;
  std::int32_t label = 0;
  if (layout.label)
    label = schema.labels_are_words ? find_class(words[*layout.label])
                                    : class_of(numbers[*layout.label]);
  const std::size_t begin = raw_.size();
  bool fits = label >= 0 && !(layout.series && words[*layout.series].empty());
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
  for (const std::size_t column : layout.targets)
    kept_.targets.push_back(static_cast<float>(numbers[column]));
  if (layout.label) kept_.labels.push_back(label);
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
  static const TableFeature kTarget;
  for (const std::size_t column : layout.targets) {
    const bool is_reported = report_ != nullptr && !is_missing(rows.fields()[column]) &&
                             std::ranges::count(layout.features, column) > 0;
    if (is_reported) continue;  // as a feature
    attempt([&] { kept_.targets.push_back(static_cast<float>(number(rows, column, kTarget))); });
  }
  if (layout.label) attempt([&] { kept_.labels.push_back(class_number(rows)); });
  if (layout.series) attempt([&] { series_of_rows_.push_back(series_of(rows)); });
  if (report_ != nullptr)
    raw_.clear();
  else if (meaning_.is_known)
    store_rows();
}

void CsvReader::add_feature(const CsvRows& rows, std::size_t index) {
  const TableFeature& feature = meaning_.schema.features[index];
  if (feature.has_numbers()) return raw_.push_back(number(rows, columns_[index].front(), feature));
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
  auto& [words, is_learned, fields, sets, places] = vocabularies_[index];
  const std::int32_t number = words.find(word);
  if (number >= 0) return number;
  if (!is_learned && words.size() < kMaxValues) return words.add(word);
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
  if (kept_.ends.size() == kMaxSets || (!members.empty() && members.front() < 0)) return -1;
  const auto repeated = std::ranges::unique(members);
  kept_.members.insert(kept_.members.end(), members.begin(), repeated.begin());
  const auto set = static_cast<std::int32_t>(kept_.ends.size());
  kept_.ends.push_back(static_cast<std::int32_t>(kept_.members.size()));
  owners_.push_back(index);
  vocabulary.fields.add(field);
  vocabulary.sets.push_back(set);
  return set;
}

std::int32_t CsvReader::class_number(const CsvRows& rows) {
  const CsvLayout& layout = meaning_.layout;
  const TableSchema& schema = meaning_.schema;
  const std::size_t column = *layout.label;
  const std::string_view field = rows.fields()[column];
  const std::string given = fmt::format("got \"{}\"", field);
  if (schema.labels_are_words) {
    const std::int32_t number = find_class(field);
    if (number >= 0) return number;
    if (!learns_classes_)
      rows.fail(column, fmt::format("expected one of the classes {}", listed(schema.class_names)),
                given);
    if (field.empty()) rows.fail(column, "expected a class", "the field is empty");
    if (classes_.size() == kMaxValues) fail_limit(rows, column, field);
    rows.fail(column,
              fmt::format("expected a word, as in the rows before, or categorical={}",
                          layout.names[column]),
              given);
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
  if (number >= 0 || !learns_classes_ || word.empty() || classes_.size() == kMaxValues)
    return number;
  const bool may_be_number = meaning_.layout.is_categorical[*meaning_.layout.label];
  return may_be_number || !csv_number<double>(word) ? classes_.add(word) : -1;
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
  if (name.empty()) rows.fail(column, "expected the name of a series", "the field is empty");
  return series_.add(name);
}

namespace {

/// Moves the parts of `values`, as many as `order` has, so that part order[i] becomes part i.
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
    kept_.series = {records_};
    return;
  }
  kept_.series.assign(series_.size(), 0);
  for (const std::int32_t number : series_of_rows_)
    ++kept_.series[static_cast<std::size_t>(number)];
  std::partial_sum(kept_.series.begin(), kept_.series.end(), kept_.series.begin());
  if (report_ != nullptr || std::ranges::is_sorted(series_of_rows_)) return;
  std::vector<std::size_t> order(series_of_rows_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t row) { return series_of_rows_[row]; });
  reorder(kept_.values, order);
  reorder(kept_.targets, order);
  reorder(kept_.labels, order);
}

void CsvReader::store_rows() {
  const std::vector<TableFeature>& features = meaning_.schema.features;
  for (auto value = raw_.begin(); value != raw_.end();)
    for (std::size_t i = 0; i < features.size(); ++i, ++value) {
      const std::vector<std::int32_t>& places = vocabularies_[i].places;
      const bool is_set = features[i].output == CategoryOutput::multi_hot;
      kept_.values.push_back(places.empty() || is_set
                                 ? stored_value(features[i], *value)
                                 : static_cast<float>(places[static_cast<std::size_t>(*value)]));
    }
  raw_.clear();
}

void CsvReader::sort_words() {
  TableSchema& schema = meaning_.schema;
  for (std::size_t i = 0; i < schema.features.size(); ++i) {
    if (vocabularies_[i].is_learned) continue;
    schema.features[i].vocabulary = sorted(vocabularies_[i].words, vocabularies_[i].places);
    schema.features[i].is_learned = true;
  }
  for (std::size_t set = 0; set < owners_.size(); ++set) {
    const std::vector<std::int32_t>& places = vocabularies_[owners_[set]].places;
    const auto begin = kept_.members.begin() + (set == 0 ? 0 : kept_.ends[set - 1]);
    for (auto member = begin; !places.empty() && member != kept_.members.begin() + kept_.ends[set];
         ++member)
      *member = places[static_cast<std::size_t>(*member)];
  }
  if (!learns_classes_) return;
  std::vector<std::int32_t> places;
  schema.class_names = sorted(classes_, places);
  schema.classes = std::ssize(schema.class_names);
  for (std::int32_t& label : kept_.labels) label = places[static_cast<std::size_t>(label)];
}

void CsvReader::fail_category(const CsvRows& rows, std::size_t index) {
  const TableFeature& feature = meaning_.schema.features[index];
  const std::size_t column = columns_[index].front();
  std::string_view word = rows.fields()[column];
  if (feature.output == CategoryOutput::multi_hot) {
    std::optional<std::string_view> unknown;
    for_words(feature.separator, word, [&](std::string_view each) {
      if (!unknown && category(index, each) < 0) unknown = each;
    });
    if (!unknown)
      rows.fail(column, fmt::format("expected at most {} different fields", kMaxSets),
                fmt::format("\"{}\" is one more", word));
    word = *unknown;
  }
  if (!vocabularies_[index].is_learned) fail_limit(rows, column, word);
  rows.fail(column,
            fmt::format("expected a value that the column {} of {} has ({}), or unknown=column",
                        feature.columns.front(), meaning_.origin, listed(feature.vocabulary)),
            fmt::format("got \"{}\"", word));
}

void CsvReader::fail_limit(const CsvRows& rows, std::size_t column, std::string_view word) const {
  rows.fail(column,
            fmt::format("expected at most {} different values in the column {}", kMaxValues,
                        meaning_.layout.names[column]),
            fmt::format("\"{}\" is one more", word));
}

/// With a report, one message for a column that has more words than numbers from this row on.
void CsvReader::fail_word(const CsvRows& rows, std::size_t column) {
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
void CsvReader::fail_missing(const CsvRows& rows, std::size_t column, std::string_view expected) {
  if (report_ != nullptr && std::exchange(missing_is_reported_, true)) return;
  std::vector<std::int64_t> counts(meaning_.layout.names.size());
  for_rest(rows, [&](const std::vector<std::string_view>& fields) {
    for (std::size_t i = 0; i < std::min(counts.size(), fields.size()); ++i)
      counts[i] += is_missing(fields[i]);
  });
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0 && requires_number_[i])
      missing.push_back(
          fmt::format("{} in {}", meaning_.layout.names[i], counted(counts[i], "row")));
  const bool is_feature = std::ranges::count(meaning_.layout.features, column) > 0;
  rows.fail(
      column,
      fmt::format("{} ({}remove these rows, or fill them in)", expected,
                  is_feature ? "missing=mean or missing=indicator allows missing values; or " : ""),
      fmt::format("got \"{}\"; missing: {}", rows.fields()[column], listed(missing)));
}

std::string CsvReader::number_text(const CsvRows& rows, std::size_t column) const {
  const std::string_view field = rows.fields()[column];
  if (has_decimal_comma(field)) return "expected a number with a decimal point instead of a comma";
  if (std::ranges::find(meaning_.layout.targets, column) != meaning_.layout.targets.end())
    return fmt::format("expected a number, or label={} for a column of classes",
                       meaning_.layout.names[column]);
  if (is_date(field))
    return fmt::format(
        "expected a number (drop={0}, or describe the column in a features file: "
        "{{\"column\": \"{0}\", \"date\": \"days\"}})",
        meaning_.layout.names[column]);
  std::vector<std::string> words;  // all of the row, so that one run is enough
  for (const std::size_t other : meaning_.layout.features)
    if (meaning_.layout.is_categorical[other] || is_word(rows.fields()[other]))
      words.push_back(meaning_.layout.names[other]);
  return fmt::format("expected a number, or {} of words: categorical={}",
                     words.size() == 1 ? "a column" : "columns", fmt::join(words, ","));
}

}  // namespace lockstep::data
