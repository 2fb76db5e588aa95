#include "lockstep/data/table/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::data {
namespace {

using Kind = TableFeature::Kind;

bool is_near(double a, double b) {
  constexpr double kTolerance = 1e-9;
  return std::abs(a - b) <= kTolerance * (std::abs(a) + std::abs(b));
}

}  // namespace

std::int64_t TableFeature::categories() const {
  if (kind == Kind::bucketized) return static_cast<std::int64_t>(boundaries.size()) + 1;
  if (kind != Kind::categorical) return buckets;
  return static_cast<std::int64_t>(vocabulary.size()) + (unknown_column ? 1 : 0);
}

std::int64_t TableFeature::values() const {
  return categories() - (kind == Kind::categorical && unknown_column ? 1 : 0);
}

std::int64_t TableFeature::width() const {
  if (kind == Kind::numeric) return has_indicator ? 2 : 1;
  if (kind == Kind::bucketized) return categories() + (has_indicator ? 1 : 0);
  return is_index() ? 0 : categories();
}

bool TableSchema::agrees_with(const TableSchema& other) const {
  if (features.size() != other.features.size() || !window.agrees_with(other.window)) return false;
  for (std::size_t i = 0; i < features.size(); ++i) {
    TableFeature adjusted = features[i];
    const TableFeature& theirs = other.features[i];
    if (!is_near(adjusted.offset, theirs.offset) || !is_near(adjusted.divisor, theirs.divisor) ||
        !is_near(adjusted.fill, theirs.fill))
      return false;
    adjusted.columns = theirs.columns;  // names are compared elsewhere
    adjusted.offset = theirs.offset;
    adjusted.divisor = theirs.divisor;
    adjusted.fill = theirs.fill;
    if (adjusted != theirs) return false;
  }
  return true;
}

std::string TableSchema::preparation() const {
  std::string text;
  for (const auto& [scale, word] : {std::pair(ColumnScale::standard, "standardized"),
                                    std::pair(ColumnScale::minmax, "scaled to 0..1")}) {
    const auto count = std::ranges::count_if(features, [&](const TableFeature& feature) {
      return feature.kind == Kind::numeric && feature.scale == scale;
    });
    if (count > 0) text += fmt::format(", {} {}", counted(count, "column"), word);
  }
  return text;
}

std::string TableSchema::statistics() const {
  constexpr std::size_t kShown = 10;
  std::vector<std::string> texts;
  std::size_t more = 0;
  for (const TableFeature& feature : features) {
    if (feature.kind != Kind::numeric || feature.scale != ColumnScale::standard) continue;
    if (texts.size() == kShown)
      ++more;
    else
      texts.push_back(fmt::format("{} (mean {:.6g}, deviation {:.6g})", feature.columns.front(),
                                  feature.offset, feature.divisor));
  }
  return fmt::format("{}{}", fmt::join(texts, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

namespace {

/// The first texts of a list, "a, b and 3 more".
std::string first_of(const std::vector<std::string>& texts) {
  constexpr std::size_t kShown = 10;
  const auto shown = std::span(texts).first(std::min(texts.size(), kShown));
  return fmt::format(
      "{}{}", fmt::join(shown, ", "),
      texts.size() > kShown ? fmt::format(" and {} more", texts.size() - kShown) : "");
}

std::int64_t count_at(const std::vector<std::int64_t>& counts, std::size_t index) {
  return index < counts.size() ? counts[index] : 0;
}

}  // namespace

std::string TableSchema::summary(const TableSchema* trained) const {
  std::string text =
      fmt::format("{} {} a header", counted(counts.rows, "row"), has_header ? "below" : "without");
  const auto add = [&](std::string_view what, const std::vector<std::string>& texts) {
    if (!texts.empty()) text += fmt::format("; {}: {}", what, first_of(texts));
  };
  std::vector<std::string> numbers;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const TableFeature& feature = features[i];
    std::vector<std::string> notes;
    if (feature.date != DatePart::none) notes.push_back("dates");
    if (!feature.has_numbers() && trained == nullptr)
      notes.push_back(counted(feature.values(), "value"));
    if (const auto rows = count_at(counts.missing, i); rows > 0)
      notes.push_back(fmt::format("{} missing", rows));
    if (const auto rows = count_at(counts.unknown, i); rows > 0)
      notes.push_back(fmt::format("{} of {} unknown", rows, counted(counts.rows, "row")));
    if (trained != nullptr && notes.empty()) continue;
    const std::string name = fmt::format("{}", fmt::join(feature.columns, " x "));
    (feature.has_numbers() ? numbers : words)
        .push_back(notes.empty() ? name : fmt::format("{} ({})", name, fmt::join(notes, ", ")));
  }
  add("numbers", numbers);
  add("words", words);
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < counts.classes.size(); ++i)
    labels.push_back(fmt::format(
        "{} ({})", i < class_names.size() ? class_names[i] : std::to_string(i), counts.classes[i]));
  add("label " + label, labels);
  if (labels.empty() && !label.empty() && trained == nullptr) text += "; label " + label;
  if (trained == nullptr) add("targets", targets);  // a prediction does not read them
  add("left out", left_out);
  return text;
}

std::vector<std::string> TableSchema::warnings(const TableSchema* trained) const {
  std::vector<std::string> texts;
  if (trained == nullptr && !counts.unnamed.empty())
    texts.push_back(
        fmt::format("{} has no name, like the index of the rows that pandas writes, and is a "
                    "feature: drop={} leaves it out",
                    counts.unnamed.size() == 1 ? fmt::format("column {}", counts.unnamed.front())
                                               : "columns " + first_of(counts.unnamed),
                    quote_spec(counts.unnamed)));
  std::vector<std::string> distinct;
  std::ranges::copy_if(counts.distinct, std::back_inserter(distinct), [&](const auto& name) {
    return std::ranges::find(counts.unnamed, name) == counts.unnamed.end();
  });
  if (trained == nullptr && !distinct.empty())
    texts.push_back(
        fmt::format("all {} of {} are different: a column that only numbers or names the rows "
                    "teaches a network nothing, and drop={} leaves it out",
                    counted(counts.rows, "value"), first_of(distinct), quote_spec(distinct)));
  for (std::size_t i = 0; trained != nullptr && i < features.size(); ++i) {
    const std::int64_t unknown = count_at(counts.unknown, i);
    const std::int64_t before = count_at(trained->counts.unknown, i);
    const auto share = [](std::int64_t part, std::int64_t rows) {
      return rows == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(rows);
    };
    if (share(unknown, counts.rows) <= share(before, trained->counts.rows)) continue;
    texts.push_back(
        fmt::format("{}: {} of {} have values that the training table does not have "
                    "(there {} of {})",
                    features[i].columns.front(), unknown, counted(counts.rows, "row"), before,
                    trained->counts.rows));
  }
  return texts;
}

}  // namespace lockstep::inline v0::data
