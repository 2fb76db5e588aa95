#include "lockstep/train/callbacks/metric_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::train {
namespace {

constexpr std::size_t kTableColumns = 80;
constexpr std::size_t kLongestName = 20;
constexpr std::size_t kMaxLines = 20;
constexpr std::size_t kMaxExtremes = 10;

/// Truncates a text to `longest` bytes between UTF-8 characters.
std::string shortened(const std::string& text, std::size_t longest) {
  std::size_t end = std::min(text.size(), longest);
  const auto continues = [&](std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (end > 0 && continues(end)) --end;
  return text.substr(0, end);
}

/// Returns the names of `classes` classes, printable and shortened to `longest` bytes.
std::vector<std::string> names_of(std::int64_t classes, const std::vector<std::string>& names,
                                  std::size_t longest = kLongestName) {
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < classes; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool named = static_cast<std::int64_t>(names.size()) == classes;
    all.push_back(shortened(named ? printable(names[at]) : std::to_string(i), longest));
  }
  return all;
}

std::size_t longest_of(const std::vector<std::string>& texts) {
  std::size_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  return longest;
}

std::string class_table(const model::MetricValue& value, const std::vector<std::string>& names) {
  const std::vector<std::string> classes = names_of(value.shape[0], names);
  std::vector<std::pair<double, std::size_t>> lines;
  for (std::size_t i = 0; i < classes.size(); ++i) lines.emplace_back(value.values[i], i);
  const bool all = lines.size() <= kMaxLines;
  std::string text = printable(value.name);
  if (!all) {
    std::ranges::stable_sort(lines, {}, &std::pair<double, std::size_t>::first);
    lines.resize(kMaxExtremes);
    text += fmt::format(", the lowest of {} classes", classes.size());
  }
  text += '\n';
  for (const auto& [number, i] : lines)
    text += fmt::format("  {:{}}  {:>8}\n", classes[i], longest_of(classes), metric_text(number));
  return text;
}

/// Lists the most frequent confusions: "12 of cat predicted as dog (3.4 % of cat)".
std::string confusions(const model::MetricValue& value, const std::vector<std::string>& names) {
  const std::vector<std::string> classes = names_of(value.shape[0], names);
  struct Cell {
    double count;
    std::size_t label;
    std::size_t predicted;
  };
  std::vector<Cell> cells;
  std::vector<double> label_counts(classes.size());
  for (std::size_t i = 0; i < value.values.size(); ++i) {
    const Cell cell{value.values[i], i / classes.size(), i % classes.size()};
    label_counts[cell.label] += cell.count;
    if (cell.label != cell.predicted && cell.count > 0) cells.push_back(cell);
  }
  std::ranges::stable_sort(cells, std::ranges::greater{}, &Cell::count);
  std::string text = fmt::format("{}, the most frequent of {} classes{}\n", printable(value.name),
                                 classes.size(), cells.empty() ? ": none" : "");
  cells.resize(std::min(cells.size(), kMaxExtremes));
  for (const Cell& cell : cells)
    text +=
        fmt::format("  {:.0f} of {} predicted as {} ({:.1f} %)\n", cell.count, classes[cell.label],
                    classes[cell.predicted], 100 * cell.count / label_counts[cell.label]);
  return text;
}

std::string confusion_table(const model::MetricValue& value,
                            const std::vector<std::string>& names) {
  constexpr std::size_t kWidestCell = 8;
  const std::vector<std::string> rows = names_of(value.shape[0], names);
  const auto largest = static_cast<std::int64_t>(std::ranges::max(value.values));
  const std::size_t first = longest_of(rows);
  const std::size_t left = kTableColumns - std::min(kTableColumns, 2 + first);
  // Columns are as wide as the names, if they fit, and not narrower than the numbers.
  const std::size_t column_width = std::min(left / rows.size(), kWidestCell + 2);
  const std::size_t digits = std::max(std::to_string(largest).size(), rows.size() > 10 ? 2UL : 1UL);
  if (column_width < digits + 2) return confusions(value, names);
  const std::vector<std::string> heads = names_of(value.shape[0], names, column_width - 2);
  const std::size_t width = std::max(digits, longest_of(heads));
  std::string text = fmt::format("{} (rows: labels, columns: predictions)\n  {:{}}",
                                 printable(value.name), "", first);
  for (const std::string& head : heads) text += fmt::format("  {:>{}}", head, width);
  for (std::size_t i = 0; i < value.values.size(); ++i) {
    if (i % rows.size() == 0) text += fmt::format("\n  {:{}}", rows[i / rows.size()], first);
    text += fmt::format("  {:{}.0f}", value.values[i], width);
  }
  return text + '\n';
}

}  // namespace

std::string metric_text(double value) {
  return std::abs(value) < 1000 ? fmt::format("{:.4f}", value) : fmt::format("{:.6g}", value);
}

double shortest(float value) {
  return parse_number<double>(fmt::format("{}", value)).value_or(value);
}

std::string metric_line(std::span<const model::MetricValue> values) {
  std::string line;
  for (const model::MetricValue& value : values)
    if (value.is_single())
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", printable(value.name),
                          metric_text(value.values.front()));
  return line;
}

std::string metric_tables(std::span<const model::MetricValue> values,
                          const std::vector<std::string>& class_names, std::string_view output) {
  const std::vector<std::string> none;
  std::string text;
  for (const model::MetricValue& value : values) {
    const bool has_names = output.empty() || value.name.starts_with(fmt::format("{}_", output));
    const std::vector<std::string>& names = has_names ? class_names : none;
    if (value.shape.size() == 1)
      text += class_table(value, names);
    else if (value.shape.size() == 2 && value.shape[0] == value.shape[1] && value.shape[0] > 0)
      text += confusion_table(value, names);
  }
  return text;
}

}  // namespace lockstep::inline v0::train
