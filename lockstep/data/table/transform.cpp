#include "lockstep/data/table/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {
namespace {

using Kind = TableFeature::Kind;

double scaled(const TableFeature& feature, double number) {
  if (feature.scale == ColumnScale::none) return number;
  return feature.divisor > 0 ? (number - feature.offset) / feature.divisor : 0;
}

std::string source_of(const TableFeature& feature) {
  std::string text;
  for (const std::string& column : feature.columns) text += (text.empty() ? "" : " x ") + column;
  const std::string_view part = feature.date == DatePart::days      ? " days"
                                : feature.date == DatePart::year    ? " year"
                                : feature.date == DatePart::month   ? " month"
                                : feature.date == DatePart::weekday ? " weekday"
                                                                    : "";
  return text.append(part);
}

}  // namespace

std::vector<std::string> names_of(const TableFeature& feature) {
  const std::string source = source_of(feature);
  std::vector<std::string> names;
  if (feature.kind == Kind::numeric || feature.is_index()) {
    names.push_back(source);
  } else if (feature.kind == Kind::bucketized) {
    const auto& ends = feature.boundaries;
    names.push_back(fmt::format("{}<{}", source, ends.front()));
    for (std::size_t i = 0; i + 1 < ends.size(); ++i)
      names.push_back(fmt::format("{}<={}<{}", ends[i], source, ends[i + 1]));
    names.push_back(fmt::format("{}>={}", source, ends.back()));
  } else if (feature.kind == Kind::categorical) {
    for (const std::string& word : feature.vocabulary)
      names.push_back(fmt::format("{}={}", source, word));
    if (feature.unknown_column) names.push_back(source + " unknown");
  } else {
    for (std::int64_t i = 0; i < feature.buckets; ++i)
      names.push_back(fmt::format("{}#{}", source, i));
  }
  if (feature.has_indicator) names.push_back(source + " missing");
  return names;
}

std::int64_t hash_bucket(std::string_view word, std::int64_t buckets) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : word) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash ^= hash >> 33;  // the mixing of MurmurHash3, because the lowest bits of FNV-1a are regular
  hash *= 0xff51afd7ed558ccdu;
  hash ^= hash >> 33;
  return static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(buckets));
}

std::optional<double> date_number(std::string_view field, DatePart part) {
  const auto number = [&](std::size_t begin, std::size_t digits) -> std::optional<int> {
    if (begin > field.size() || digits > field.size() - begin) return std::nullopt;
    int value = 0;
    const char* const end = field.data() + begin + digits;
    const auto [rest, error] = std::from_chars(field.data() + begin, end, value);
    if (error != std::errc{} || rest != end || value < 0) return std::nullopt;
    return value;
  };
  const auto has = [&](std::size_t position, std::string_view any) {
    return position < field.size() && any.find(field[position]) != std::string_view::npos;
  };
  std::size_t end = 10;
  std::optional<int> year;
  std::optional<int> month;
  std::optional<int> day;
  if (has(4, "-/")) {
    if (!has(7, field.substr(4, 1))) return std::nullopt;
    year = number(0, 4);
    month = number(5, 2);
    day = number(8, 2);
  } else {  // 24.11.2026 or 1.2.2026
    const std::size_t first = std::min(field.find('.'), field.size());
    const std::size_t second = std::min(field.find('.', first + 1), field.size());
    if (first > 2 || second - first > 3) return std::nullopt;
    day = number(0, first);
    month = number(first + 1, second - first - 1);
    year = number(second + 1, 4);
    end = second + 5;
  }
  if (!year || !month || !day) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return std::nullopt;
  double time = 0;  // fraction of the day; a time zone is ignored
  if (field.size() > end) {
    const auto hour = number(end + 1, 2);
    const auto minute = number(end + 4, 2);
    if (!has(end, "T ") || !hour || !minute || !has(end + 3, ":") || *hour > 24 || *minute > 59)
      return std::nullopt;
    const int second = has(end + 6, ":") ? number(end + 7, 2).value_or(-1) : 0;
    if (second < 0 || second > 60) return std::nullopt;
    time = (*hour * 3600 + *minute * 60 + second) / 86400.0;
  }
  const std::chrono::sys_days days(date);
  switch (part) {
    case DatePart::year:
      return *year;
    case DatePart::month:
      return *month;
    case DatePart::weekday:
      return std::chrono::weekday(days).iso_encoding() - 1;
    default:
      return static_cast<double>(days.time_since_epoch().count()) + time;
  }
}

double prepared(const TableFeature& feature, double number) {
  if (feature.kind == Kind::bucketized && std::isnan(number)) return kNoCategory;
  if (feature.lowest && number < *feature.lowest) number = *feature.lowest;
  if (feature.highest && number > *feature.highest) number = *feature.highest;
  if (feature.log) number = std::log1p(number);
  if (feature.kind == Kind::numeric || !std::isfinite(number)) return number;
  const auto bucket = std::ranges::upper_bound(feature.boundaries, number);
  return static_cast<double>(bucket - feature.boundaries.begin());
}

void learn_statistics(TableSchema& schema, std::span<const double> rows, const std::string& table) {
  struct Sums {
    double sum = 0;
    double squares = 0;
    double lowest = std::numeric_limits<double>::infinity();
    double highest = -std::numeric_limits<double>::infinity();
    std::int64_t count = 0;
  };
  std::vector<std::size_t> unlearned;  // features without statistics
  const std::size_t stride = schema.features.size();
  for (std::size_t i = 0; i < stride; ++i)
    if (schema.features[i].has_numbers() && !schema.features[i].is_learned) unlearned.push_back(i);
  std::vector<Sums> sums(unlearned.size());
  const std::size_t records = stride == 0 ? 0 : rows.size() / stride;
  for (std::size_t row = 0; row < records; ++row)
    for (std::size_t i = 0; i < unlearned.size(); ++i) {
      const double number = rows[row * stride + unlearned[i]];
      if (std::isnan(number)) continue;
      sums[i].sum += number;
      sums[i].lowest = std::min(sums[i].lowest, number);
      sums[i].highest = std::max(sums[i].highest, number);
      ++sums[i].count;
    }
  std::vector<double> means(unlearned.size());
  for (std::size_t i = 0; i < unlearned.size(); ++i)  // exact for a constant column
    means[i] = sums[i].lowest == sums[i].highest ? sums[i].lowest
                                                 : sums[i].sum / static_cast<double>(sums[i].count);
  for (std::size_t row = 0; row < records; ++row)
    for (std::size_t i = 0; i < unlearned.size(); ++i) {
      const double difference = rows[row * stride + unlearned[i]] - means[i];
      if (!std::isnan(difference)) sums[i].squares += difference * difference;
    }
  for (std::size_t i = 0; i < unlearned.size(); ++i) {
    TableFeature& feature = schema.features[unlearned[i]];
    feature.is_learned = true;
    const bool has_missing = feature.kind == Kind::bucketized
                                 ? sums[i].lowest == kNoCategory
                                 : sums[i].count < static_cast<std::int64_t>(records);
    feature.has_indicator = has_missing && feature.missing.rule == MissingValues::Rule::indicator;
    if (feature.kind == Kind::bucketized) continue;
    if (sums[i].count == 0)
      throw Error(ErrorCategory::data, table,
                  fmt::format("expected numbers in the column {}", feature.columns.front()),
                  "all are missing");
    if (feature.missing.rule == MissingValues::Rule::mean ||
        feature.missing.rule == MissingValues::Rule::indicator)
      feature.fill = means[i];
    if (feature.scale == ColumnScale::none) continue;
    const bool is_standard = feature.scale == ColumnScale::standard;
    feature.offset = is_standard ? means[i] : sums[i].lowest;
    feature.divisor = is_standard ? std::sqrt(sums[i].squares / static_cast<double>(sums[i].count))
                                  : sums[i].highest - sums[i].lowest;
  }
}

namespace {

/// The number of distinct values in `numbers`, as double and as float32. Two zeros if rounding
/// errors are within kToleratedRounding of their deviation.
std::pair<std::size_t, std::size_t> count_different(std::vector<double> numbers) {
  const auto count = static_cast<double>(numbers.size());
  const double mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / count;
  double squares = 0;
  double largest_error = 0;
  for (const double number : numbers) {
    squares += (number - mean) * (number - mean);
    largest_error = std::max(largest_error, std::abs(number - static_cast<float>(number)));
  }
  if (largest_error <= kToleratedRounding * std::sqrt(squares / count)) return {0, 0};
  const auto remove_duplicates = [&] {
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    return numbers.size();
  };
  std::ranges::sort(numbers);
  const std::size_t distinct = remove_duplicates();
  for (double& number : numbers) number = static_cast<float>(number);
  return {distinct, remove_duplicates()};
}

/// Checks column `first` of `rows`, which have `stride` columns.
void check_column(std::span<const double> rows, std::size_t first, std::size_t stride,
                  const std::string& table, const std::string& column, std::string_view remedy) {
  std::vector<double> numbers;
  for (std::size_t i = first; i < rows.size(); i += stride)
    if (!std::isnan(rows[i])) numbers.push_back(rows[i]);
  if (numbers.empty()) return;
  const auto [distinct, stored] = count_different(std::move(numbers));
  if (stored < distinct)
    throw Error(ErrorCategory::data, table,
                fmt::format("expected numbers in the column {} that float32 can tell apart: {}",
                            column, remedy),
                fmt::format("its {} different numbers would become {}", distinct, stored));
}

}  // namespace

void check_precision(const TableSchema& schema, std::span<const double> rows,
                     std::span<const double> targets, const std::string& table) {
  for (std::size_t i = 0; i < schema.features.size(); ++i) {
    const TableFeature& feature = schema.features[i];
    if (feature.kind == Kind::numeric && feature.scale == ColumnScale::none)
      check_column(rows, i, schema.features.size(), table, feature.columns.front(),
                   "scale=standard scales it before it is stored, drop= leaves it out");
  }
  for (std::size_t i = 0; i < schema.targets.size(); ++i)
    check_column(targets, i, schema.targets.size(), table, schema.targets[i],
                 "subtract a constant from this target");
}

float stored_value(const TableFeature& feature, double prepared_number) {
  if (feature.kind != Kind::numeric) return static_cast<float>(prepared_number);
  if (std::isnan(prepared_number)) {
    if (feature.has_indicator) return std::numeric_limits<float>::quiet_NaN();
    prepared_number = feature.fill;
  }
  return static_cast<float>(scaled(feature, prepared_number));
}

void expand(const TableFeature& feature, float value, std::span<float> features) {
  if (feature.kind == Kind::numeric) {
    const bool is_missing = std::isnan(value);
    features[0] = is_missing ? static_cast<float>(scaled(feature, feature.fill)) : value;
    if (feature.has_indicator) features[1] = is_missing ? 1.0F : 0.0F;
    return;
  }
  std::ranges::fill(features, 0.0F);
  if (value >= 0)
    features[static_cast<std::size_t>(value)] = 1;
  else if (feature.has_indicator)
    features.back() = 1;
}

}  // namespace lockstep::inline v0::data
