#include "lockstep/onnx/export/table_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/table/csv_rows.h"
#include "lockstep/data/table/transform.h"
#include "lockstep/onnx/export.h"

namespace lockstep::inline v0::onnx {
namespace {

using data::DatePart;
using data::TableFeature;
using Kind = TableFeature::Kind;
using Rule = data::MissingValues::Rule;

constexpr const char* kOfTable = "preprocessing";
constexpr std::int64_t kSecondsOfDay = 86400;

bool is_number(const TableFeature& feature) {
  return feature.has_numbers() && feature.date == DatePart::none;
}

std::string name_of(const TableFeature& feature) { return data::names_of(feature).front(); }

/// Why standard operators do not make the feature; empty if they do.
std::string_view why_not(const TableFeature& feature) {
  if (feature.kind == Kind::hashed || feature.kind == Kind::crossed)
    return "is a hash, for which ONNX has no operator";
  if (!feature.has_numbers() && feature.output == data::CategoryOutput::multi_hot)
    return "has several words in a field, which no operator of this version of ONNX splits";
  return {};
}

void refuse_table(std::string_view expected, const std::string& actual) {
  throw Error(ErrorCategory::input, kOfTable, expected, actual);
}

/// Refuses a scaled column of numbers that float32, the type of the input, rounds too much.
void check_rounding(const TableFeature& feature) {
  constexpr double kRounding = 0x1p-24;  // largest relative error of a float32
  if (!is_number(feature) || feature.kind != Kind::numeric || feature.log ||
      feature.scale == data::ColumnScale::none || !(feature.divisor > 0) ||
      std::abs(feature.offset) * kRounding <= data::kToleratedRounding * feature.divisor)
    return;
  refuse_table(
      "expected columns whose numbers float32, the type of the input, can tell apart; subtract a "
      "constant from the column before the training, or leave the preprocessing to the caller",
      fmt::format("got the column {} of numbers near {} within {:.3g}", feature.columns.front(),
                  feature.offset, feature.divisor));
}

/// What replaces a missing number after it is prepared; NaN: nothing.
double fill_of(const TableFeature& feature) {
  if (feature.missing.rule == Rule::error) return std::numeric_limits<double>::quiet_NaN();
  if (feature.missing.rule == Rule::value) return data::prepared(feature, feature.missing.value);
  return feature.fill;
}

/// What is subtracted from the seconds of a date before they become float32: the offset of its
/// scale, if the number of days is only scaled.
std::int64_t shift_of(const TableFeature& feature) {
  const bool is_shifted = feature.date == DatePart::days && feature.kind == Kind::numeric &&
                          feature.scale != data::ColumnScale::none && !feature.lowest &&
                          !feature.highest && !feature.log;
  return is_shifted ? std::llround(feature.offset * kSecondsOfDay) : 0;
}

/// The shift in days.
double days_of(std::int64_t shift) { return static_cast<double>(shift) / kSecondsOfDay; }

}  // namespace

std::vector<std::string> number_columns(const data::TableSchema& table) {
  std::vector<std::string> columns;
  for (const TableFeature& feature : table.features)
    if (is_number(feature) && std::ranges::find(columns, feature.columns.front()) == columns.end())
      columns.push_back(feature.columns.front());
  return columns;
}

TableGraph::TableGraph(GraphBuilder& graph, const data::TableSchema& table)
    : graph_(graph), table_(table), columns_(number_columns(table)) {
  if (table.window.rows > 0)
    refuse_table("expected a table whose samples are its rows",
           fmt::format("they are windows of {}", table.window.rows));
  for (const Feature& feature : table.features) {
    if (const std::string_view reason = why_not(feature); !reason.empty())
      refuse_table("expected features of numbers, words and dates that operators of ONNX can compute",
             fmt::format("got the feature {}, which {}", name_of(feature), reason));
    check_rounding(feature);
    width_ += feature.width();
  }
}

std::string TableGraph::input(std::string_view column, TensorType type) {
  std::string& value = inputs_[fmt::format("{} {}", static_cast<int>(type), column)];
  if (!value.empty()) return value;
  const std::string name = graph_.unique_name(column);
  graph_.graph.inputs.push_back({.name = name, .type = type, .shape = {"batch"}});
  value = graph_.add("Unsqueeze", {name, graph_.integers({1})}, name + "/column");
  return value;
}

// ---- Numbers

std::string TableGraph::column(const Feature& feature) {
  const auto found = std::ranges::find(columns_, feature.columns.front());
  return graph_.add("Gather", {numbers_, graph_.integers({found - columns_.begin()})},
                    feature.columns.front() + "/column", {{"axis", std::int64_t{1}}});
}

std::string TableGraph::as_float(const std::string& value, std::string_view name) {
  return graph_.add("Cast", {value}, name,
                    {{"to", static_cast<std::int64_t>(TensorType::float32)}});
}

std::string TableGraph::is_missing(const std::string& value, std::string_view name) {
  return graph_.add("IsNaN", {value}, fmt::format("{}/is_missing", name));
}

std::string TableGraph::replaced(const std::string& condition, float number,
                                 const std::string& value, std::string_view name) {
  return graph_.add("Where", {condition, graph_.number(number), value}, name);
}

std::string TableGraph::joined(const std::vector<std::string>& values, std::string_view name) {
  return values.size() == 1 ? values.front()
                            : graph_.add("Concat", values, name, {{"axis", std::int64_t{1}}});
}

/// Clips a number, and takes its logarithm.
std::string TableGraph::prepared(const Feature& feature, std::string value) {
  const std::string name = name_of(feature);
  const auto clip = [&](const char* comparison, const std::optional<double>& bound) {
    if (!bound) return;
    const auto number = static_cast<float>(*bound);
    const std::string is_beyond =
        graph_.add(comparison, {value, graph_.number(number)}, name + "/is_beyond");
    value = replaced(is_beyond, number, value, name + "/clipped");
  };
  clip("Less", feature.lowest);
  clip("Greater", feature.highest);
  if (!feature.log) return value;
  value = graph_.add("Add", {value, graph_.number(1)}, name + "/plus_one");
  return graph_.add("Log", {value}, name + "/log");
}

// ---- Dates

std::string TableGraph::seconds(const Feature& feature) {
  return input(feature.columns.front(), TensorType::int64);
}

/// The year, month or weekday of [batch, 1] seconds, as int64, in the proleptic Gregorian calendar
/// (Hinnant, "chrono-compatible low-level date algorithms", days_from_civil).
std::string TableGraph::date_part(const Feature& feature, const std::string& seconds) {
  constexpr std::int64_t kEra = 146097;            // days of 400 years
  constexpr std::int64_t kBefore = 719468 + kEra;  // days from -0400-03-01 to 1970-01-01
  const std::string name = name_of(feature);
  const auto apply = [&](const char* op, const std::string& a, const std::string& b,
                         const char* part) {
    return graph_.add(op, {a, b}, fmt::format("{}/{}", name, part));
  };
  const auto with = [&](const char* op, const std::string& a, std::int64_t b, const char* part) {
    return apply(op, a, graph_.integers({b}), part);
  };
  // Integers are divided towards 0, so all of them are positive.
  const std::string shifted = with("Add", seconds, kBefore * kSecondsOfDay, "seconds");
  const std::string days = with("Div", shifted, kSecondsOfDay, "days");
  if (feature.date == DatePart::weekday)  // 1970-01-01 was a Thursday, 3
    return with("Mod", with("Add", days, (3 + 7 * kBefore - kBefore) % 7, "weekdays"), 7,
                "weekday");
  const std::string era = with("Div", days, kEra, "era");
  const std::string day = apply("Sub", days, with("Mul", era, kEra, "days_before"), "day_of_era");
  std::string leap = apply("Sub", day, with("Div", day, 1460, "leap_years"), "without_leap_days");
  leap = apply("Add", leap, with("Div", day, 36524, "centuries"), "with_centuries");
  leap = apply("Sub", leap, with("Div", day, kEra - 1, "last_day"), "without_last_day");
  const std::string year = with("Div", leap, 365, "year_of_era");
  std::string before = with("Mul", year, 365, "days_of_years");
  before = apply("Add", before, with("Div", year, 4, "leap_days"), "with_leap_days");
  before = apply("Sub", before, with("Div", year, 100, "century_days"), "days_before_year");
  const std::string of_year = apply("Sub", day, before, "day_of_year");  // from March
  const std::string month = with(
      "Div", with("Add", with("Mul", of_year, 5, "fifths"), 2, "rounded_fifths"), 153, "month_0");
  // The months from March are 0 to 11; January and February belong to the next year.
  const std::string is_next =
      graph_.add("Cast", {with("GreaterOrEqual", month, 10, "is_next_year")}, name + "/next_year",
                 {{"to", static_cast<std::int64_t>(TensorType::int64)}});
  if (feature.date == DatePart::month)
    return apply("Sub", with("Add", month, 3, "month_from_1"),
                 with("Mul", is_next, 12, "months_before"), "month");
  const std::string years = with("Sub", with("Mul", era, 400, "years_of_eras"), 400, "years");
  return apply("Add", apply("Add", years, year, "year_from_march"), is_next, "year");
}

/// The number of a date, [batch, 1], NaN if it is missing. The days have `shift` seconds less.
std::string TableGraph::date(const Feature& feature, std::int64_t shift) {
  const std::string name = name_of(feature);
  const std::string seconds = this->seconds(feature);
  std::string value;
  if (feature.date == DatePart::days) {
    value = shift == 0 ? seconds
                       : graph_.add("Sub", {seconds, graph_.integers({shift})}, name + "/shifted");
    value = graph_.add(
        "Div",
        {as_float(value, name + "/seconds"), graph_.number(static_cast<float>(kSecondsOfDay))},
        name + "/days");
  } else {
    value = as_float(date_part(feature, seconds), name + "/number");
  }
  const std::string is_missing =
      graph_.add("Equal", {seconds, graph_.integers({std::numeric_limits<std::int64_t>::min()})},
                 name + "/is_missing");
  return replaced(is_missing, std::numeric_limits<float>::quiet_NaN(), value, name + "/present");
}

// ---- Numeric features

/// The prepared numbers [batch, features]. Neighbors that are as in the table are gathered at once.
std::string TableGraph::raw_numbers(std::string_view name,
                                    const std::vector<const Feature*>& numbers) {
  std::vector<std::string> values;
  std::vector<std::int64_t> plain;
  const auto gather = [&] {
    std::vector<std::int64_t> all(columns_.size());
    std::iota(all.begin(), all.end(), 0);
    if (plain == all)
      values.push_back(numbers_);
    else if (!plain.empty())
      values.push_back(graph_.add("Gather", {numbers_, graph_.integers(plain)},
                                  fmt::format("{}/numbers", name), {{"axis", std::int64_t{1}}}));
    plain.clear();
  };
  for (const Feature* const feature : numbers) {
    if (feature->is_plain()) {
      plain.push_back(std::ranges::find(columns_, feature->columns.front()) - columns_.begin());
      continue;
    }
    gather();
    values.push_back(prepared(*feature, feature->date == DatePart::none
                                            ? column(*feature)
                                            : date(*feature, shift_of(*feature))));
  }
  gather();
  return joined(values, fmt::format("{}/prepared", name));
}

/// (value - offset) / divisor. In float32, because many runtimes lack float64. The offset is a sum
/// of two floats: subtracting the first is exact near it, and the second is its rounding error.
std::string TableGraph::scaled(std::string_view name, std::string value,
                               const std::vector<const Feature*>& numbers) {
  std::vector<float> offsets;
  std::vector<float> remainders;
  std::vector<float> divisors;
  for (const Feature* const feature : numbers) {
    const bool is_scaled = feature->scale != data::ColumnScale::none;
    const double exact = is_scaled ? feature->offset - days_of(shift_of(*feature)) : 0;
    const double exact_divisor = is_scaled ? feature->divisor : 1;
    const auto offset = static_cast<float>(exact);
    const auto divisor = static_cast<float>(exact_divisor);
    if (!std::isfinite(offset) || (exact_divisor != 0 && !std::isnormal(divisor)))
      refuse_table("expected offsets and divisors that float32 can represent",
             fmt::format("got {} and {} of the column {}", exact, exact_divisor,
                         feature->columns.front()));
    offsets.push_back(offset);
    remainders.push_back(static_cast<float>(exact - double{offset}));
    // A quotient by infinity is 0.
    divisors.push_back(divisor == 0 ? std::numeric_limits<float>::infinity() : divisor);
  }
  const auto apply = [&](const char* op, const std::vector<float>& constants, float identity,
                         const char* constant, const char* result) {
    if (std::ranges::all_of(constants, [&](float number) { return number == identity; })) return;
    const auto columns = static_cast<std::int64_t>(constants.size());
    value = graph_.add(
        op, {value, graph_.floats(fmt::format("{}/{}", name, constant), {columns}, constants)},
        fmt::format("{}/{}", name, result));
  };
  apply("Sub", offsets, 0, "offset", "centered");
  apply("Sub", remainders, 0, "offset_remainder", "exactly_centered");
  apply("Div", divisors, 1, "divisor", "normalized");
  return value;
}

void TableGraph::add_numbers(std::string_view name, std::vector<Block>& blocks) {
  std::vector<const Feature*> numbers;
  Block values;
  Block indicators;
  std::vector<std::int64_t> indicated;  // which of the numbers have an indicator
  std::int64_t position = 0;
  for (const Feature& feature : table_.features) {
    if (feature.kind == Kind::numeric) {
      values.positions.push_back(position);
      if (feature.has_indicator) {
        indicators.positions.push_back(position + 1);
        indicated.push_back(std::ssize(numbers));
      }
      numbers.push_back(&feature);
    }
    position += feature.width();
  }
  if (numbers.empty()) return;
  values.value = raw_numbers(name, numbers);
  std::vector<float> fills;
  for (const Feature* const feature : numbers)
    fills.push_back(static_cast<float>(fill_of(*feature) - days_of(shift_of(*feature))));
  const bool are_filled = !std::ranges::all_of(fills, [](float fill) { return std::isnan(fill); });
  if (are_filled || !indicated.empty()) {
    const std::string missing = is_missing(values.value, name);
    const auto columns = static_cast<std::int64_t>(fills.size());
    values.value = graph_.add(
        "Where",
        {missing, graph_.floats(fmt::format("{}/fill", name), {columns}, fills), values.value},
        fmt::format("{}/filled", name));
    if (!indicated.empty())
      indicators.value = graph_.add(
          "Gather",
          {as_float(missing, fmt::format("{}/missing", name)), graph_.integers(indicated)},
          fmt::format("{}/indicators", name), {{"axis", std::int64_t{1}}});
  }
  values.value = scaled(name, values.value, numbers);
  blocks.push_back(std::move(values));
  if (!indicated.empty()) blocks.push_back(std::move(indicators));
}

/// The one-hot buckets of a number. Bucket i is at least boundary i - 1, and less than boundary i.
std::string TableGraph::buckets(const Feature& feature) {
  const std::string name = feature.columns.front() + "/buckets";
  std::string value = feature.date == DatePart::none ? column(feature) : date(feature, 0);
  if (feature.missing.rule == Rule::value)
    value = replaced(is_missing(value, name), static_cast<float>(feature.missing.value), value,
                     name + "/filled");
  value = prepared(feature, value);
  const std::string missing = as_float(is_missing(value, name), name + "/missing");
  const std::string present = graph_.add("Sub", {graph_.number(1), missing}, name + "/present");
  const std::vector<float> boundaries(feature.boundaries.begin(), feature.boundaries.end());
  const std::string from = as_float(
      graph_.add("GreaterOrEqual",
                 {value, graph_.floats(name + "/boundaries", {std::ssize(boundaries)}, boundaries)},
                 name + "/reaches"),
      name + "/from");
  const std::string until =
      graph_.add("Pad", {from, graph_.integers({0, 0, 0, 1})}, name + "/until");
  std::string one_hot =
      graph_.add("Sub", {joined({present, from}, name + "/begin"), until}, name + "/one_hot");
  return feature.has_indicator ? joined({one_hot, missing}, name + "/with_missing") : one_hot;
}

// ---- Words

/// The one-hot words of the vocabulary, [batch, values()]: counts of n-grams of one word, the only
/// standard operator on strings before opset 19.
std::string TableGraph::words(const Feature& feature) {
  std::vector<std::string> pool = feature.vocabulary;
  std::vector<std::int64_t> places(pool.size());
  std::iota(places.begin(), places.end(), 0);
  // Each spelling of a missing word is NA, if it is not a word itself.
  const auto missing = std::ranges::find(feature.vocabulary, data::kMissingWord);
  if (missing != feature.vocabulary.end())
    for (const std::string_view spelling : data::missing_spellings())
      if (std::ranges::find(feature.vocabulary, spelling) == feature.vocabulary.end()) {
        pool.emplace_back(spelling);
        places.push_back(missing - feature.vocabulary.begin());
      }
  return graph_.add("TfIdfVectorizer", {input(feature.columns.front(), TensorType::string)},
                    feature.columns.front() + "/one_hot",
                    {{"mode", std::string("TF")},
                     {"min_gram_length", std::int64_t{1}},
                     {"max_gram_length", std::int64_t{1}},
                     {"max_skip_count", std::int64_t{0}},
                     {"ngram_counts", std::vector<std::int64_t>{0}},
                     {"ngram_indexes", places},
                     {"pool_strings", pool}});
}

/// 1 if a word is not in the vocabulary, else 0, [batch, 1].
std::string TableGraph::unknown(const Feature& feature, const std::string& words) {
  const std::string& name = feature.columns.front();
  const std::string known = graph_.add("ReduceSum", {words, graph_.integers({1})}, name + "/known");
  return graph_.add("Sub", {graph_.number(1), known}, name + "/unknown");
}

std::optional<std::string> TableGraph::index(std::string_view name) {
  const auto found = std::ranges::find_if(table_.features, [&](const Feature& feature) {
    return feature.is_index() && name_of(feature) == name;
  });
  if (found == table_.features.end()) return std::nullopt;
  const std::string words = this->words(*found);
  // The number of an unknown word follows the others. Without a category for it, the embedding has
  // no such row, and the program that runs the graph reports an error, as predict does.
  std::vector<float> places(found->vocabulary.size());
  std::iota(places.begin(), places.end(), 0.0F);
  const auto count = static_cast<float>(places.size());
  std::string number = graph_.add(
      "MatMul",
      {words, graph_.floats(fmt::format("{}/numbers", name), {std::ssize(places), 1}, places)},
      fmt::format("{}/known_number", name));
  const std::string others = graph_.add("Mul", {unknown(*found, words), graph_.number(count)},
                                        fmt::format("{}/unknown_number", name));
  number = graph_.add("Add", {number, others}, fmt::format("{}/number", name));
  number = graph_.add("Squeeze", {number, graph_.integers({1})}, fmt::format("{}/flat", name));
  return graph_.add("Cast", {number}, fmt::format("{}/index", name),
                    {{"to", static_cast<std::int64_t>(TensorType::int32)}});
}

std::string TableGraph::features(std::string_view name) {
  if (!columns_.empty()) {
    numbers_ = graph_.unique_name(name);
    graph_.graph.inputs.push_back(
        {.name = numbers_, .type = TensorType::float32, .shape = {"batch", std::ssize(columns_)}});
  }
  std::vector<Block> blocks;
  add_numbers(name, blocks);
  std::int64_t position = 0;
  for (const Feature& feature : table_.features) {
    if (feature.kind != Kind::numeric && !feature.is_index()) {
      Block block;
      if (feature.kind == Kind::bucketized) {
        block.value = buckets(feature);
      } else {
        block.value = words(feature);
        if (feature.unknown_column)
          block.value = joined({block.value, unknown(feature, block.value)},
                               feature.columns.front() + "/with_unknown");
      }
      block.positions.resize(static_cast<std::size_t>(feature.width()));
      std::iota(block.positions.begin(), block.positions.end(), position);
      blocks.push_back(std::move(block));
    }
    position += feature.width();
  }
  std::vector<std::string> values;
  std::vector<std::int64_t> order(static_cast<std::size_t>(width_));  // where each feature is
  std::int64_t place = 0;
  for (const Block& block : blocks) {
    values.push_back(block.value);
    for (const std::int64_t target : block.positions)
      order[static_cast<std::size_t>(target)] = place++;
  }
  LOCKSTEP_CHECK_OP(place, ==, width_);
  const std::string all = joined(values, fmt::format("{}/joined", name));
  if (std::ranges::is_sorted(order)) return all;
  return graph_.add("Gather", {all, graph_.integers(order)}, fmt::format("{}/ordered", name),
                    {{"axis", std::int64_t{1}}});
}

}  // namespace lockstep::inline v0::onnx
