#include "lockstep/data/table/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/text.h"

namespace lockstep::data {
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

std::int64_t TableFeature::width() const {
  if (kind == Kind::numeric) return has_indicator ? 2 : 1;
  if (kind == Kind::bucketized) return categories() + (has_indicator ? 1 : 0);
  return is_index() ? 0 : categories();
}

bool TableSchema::agrees_with(const TableSchema& other) const {
  if (features.size() != other.features.size() || !window.agrees_with(other.window)) return false;
  for (std::size_t i = 0; i < features.size(); ++i) {
    TableFeature mine = features[i];
    const TableFeature& others = other.features[i];
    if (!is_near(mine.offset, others.offset) || !is_near(mine.divisor, others.divisor) ||
        !is_near(mine.fill, others.fill))
      return false;
    mine.columns = others.columns;  // names are compared elsewhere
    mine.offset = others.offset;
    mine.divisor = others.divisor;
    mine.fill = others.fill;
    if (mine != others) return false;
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

}  // namespace lockstep::data
