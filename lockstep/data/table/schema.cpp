#include "lockstep/data/table/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
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

bool TableFeature::has_flags() const {
  constexpr std::array<std::string_view, 4> kFlags = {"true", "false", "yes", "no"};
  const auto is_flag = [&](std::string word) {
    std::ranges::transform(word, word.begin(), [](unsigned char letter) {
      return static_cast<char>(std::tolower(letter));
    });
    return std::ranges::find(kFlags, word) != kFlags.end();
  };
  return kind == Kind::categorical && std::ranges::any_of(vocabulary, is_flag) &&
         std::ranges::all_of(vocabulary, [&](const std::string& word) {
           return is_flag(word) || word == kMissingWord;
         });
}

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

constexpr std::size_t kShown = 10;

/// The first texts of a list, "a, b and 3 more".
std::string first_of(const std::vector<std::string>& texts) {
  const auto shown = std::span(texts).first(std::min(texts.size(), kShown));
  return fmt::format(
      "{}{}", fmt::join(shown, ", "),
      texts.size() > kShown ? fmt::format(" and {} more", texts.size() - kShown) : "");
}

std::int64_t count_at(const std::vector<std::int64_t>& counts, std::size_t index) {
  return index < counts.size() ? counts[index] : 0;
}

}  // namespace

std::string TableSchema::notes(std::size_t index, bool is_training) const {
  const TableFeature& feature = features[index];
  std::vector<std::string> notes;
  if (!feature.has_numbers() && is_training) notes.push_back(counted(feature.values(), "value"));
  using Rule = MissingValues::Rule;
  const bool has_fill =
      feature.missing.rule == Rule::mean || feature.missing.rule == Rule::indicator;
  if (const auto rows = count_at(counts.missing, index); rows > 0)
    notes.push_back(fmt::format("{} missing{}", rows,
                                feature.kind == Kind::numeric && has_fill && is_training
                                    ? fmt::format(": mean {:.4g}", feature.fill)
                                    : ""));
  if (const auto rows = count_at(counts.unknown, index); rows > 0)
    notes.push_back(is_training
                        ? fmt::format("{} with a word of one row", counted(rows, "row"))
                        : fmt::format("{} of {} unknown", rows, counted(counts.rows, "row")));
  return fmt::format("{}", fmt::join(notes, ", "));
}

std::vector<std::string> TableSchema::summary(const TableSchema* trained) const {
  std::vector<std::string> lines = {
      fmt::format("{} {} a header", counted(counts.rows, "row"), has_header ? "below" : "without")};
  const auto add = [&](std::string_view what, const std::vector<std::string>& texts) {
    if (!texts.empty()) lines.push_back(fmt::format("{}: {}", what, first_of(texts)));
  };
  struct Group {
    std::string_view name;
    std::vector<std::string> noted = {};
    std::vector<std::string> others = {};
  };
  std::array<Group, 4> groups = {Group{"numbers"}, {"dates"}, {"flags"}, {"words"}};
  for (std::size_t i = 0; i < features.size(); ++i) {
    const TableFeature& feature = features[i];
    const std::string notes = this->notes(i, trained == nullptr);
    if (trained != nullptr && notes.empty()) continue;
    Group& group = groups[feature.date != DatePart::none ? 1
                          : feature.has_numbers()        ? 0
                          : feature.has_flags()          ? 2
                                                         : 3];
    const std::string name = fmt::format("{}", fmt::join(feature.columns, " x "));
    if (notes.empty())
      group.others.push_back(name);
    else
      group.noted.push_back(fmt::format("{} ({})", name, notes));
  }
  for (Group& group : groups) {
    group.noted.insert(group.noted.end(), group.others.begin(), group.others.end());
    add(group.name, group.noted);
  }
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < counts.classes.size(); ++i)
    labels.push_back(fmt::format(
        "{} ({})", i < class_names.size() ? class_names[i] : std::to_string(i), counts.classes[i]));
  add("label " + label, labels);
  if (labels.empty() && !label.empty() && trained == nullptr) lines.push_back("label " + label);
  if (trained == nullptr) add("targets", targets);  // a prediction does not read them
  add("left out", left_out);
  return lines;
}

std::vector<std::string> TableSchema::warnings(const TableSchema* trained) const {
  std::vector<std::string> texts;
  if (trained == nullptr && !counts.identifiers.empty())
    texts.push_back(fmt::format(
        "left out: {}, whose values are all different, so that they only number or name the rows; "
        "keep={} makes {}",
        first_of(counts.identifiers), quote_spec(counts.identifiers),
        counts.identifiers.size() == 1 ? "it a feature" : "them features"));
  if (trained == nullptr && !counts.empty.empty())
    texts.push_back(fmt::format("left out: {}, without values", first_of(counts.empty)));
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
