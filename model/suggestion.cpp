#include "model/suggestion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep::model {
namespace {

// Insertions, removals and replacements that turn one name into the other (Levenshtein's distance), row by row.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string list_names(std::span<const std::string_view> names) { return fmt::format("{}", fmt::join(names, ", ")); }

std::string got_name(std::string_view name, std::span<const std::string_view> known) {
  constexpr std::size_t kLongestName = 64;  // beyond it nothing was mistyped, and the distance is quadratic
  std::string text = fmt::format("got \"{}\"", name);
  if (known.empty() || name.size() > kLongestName) return text;
  const auto closest = std::ranges::min_element(
      known, {}, [name](std::string_view candidate) { return edit_distance(name, candidate); });
  const bool is_near = edit_distance(name, *closest) <= (closest->size() + 2) / 3;
  return is_near ? fmt::format("{} (did you mean {}?)", text, *closest) : text;
}

}  // namespace lockstep::model
