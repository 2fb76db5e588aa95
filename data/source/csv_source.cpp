#include "data/source/csv_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "data/record/compression.h"
#include "data/record/input_file.h"
#include "device/error.h"

namespace lockstep::data {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    fields.push_back(trimmed(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return fields;
}

template <typename Number>
std::optional<Number> number_in(std::string_view field) {
  if (field.starts_with('+')) field.remove_prefix(1);
  Number value = {};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return value;
}

bool is_header(const std::vector<std::string_view>& fields) {
  return std::any_of(fields.begin(), fields.end(), [](std::string_view field) { return !number_in<double>(field); });
}

[[noreturn]] void fail(const std::filesystem::path& file, std::int64_t line, std::size_t column,
                       std::string_view needed, std::string_view given) {
  throw Error(ErrorCategory::data, fmt::format("{}: line {}, column {}", file.string(), line, column), needed, given);
}

}  // namespace

CsvSource::CsvSource(const std::filesystem::path& file) : file_(file) {
  const std::string text = read_all(InputFile(file), Compression::none);
  std::string_view rest = text;
  bool first = true;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    const auto fields = fields_of(line);
    if (!(first && is_header(fields))) add_row(fields, number);
    first = false;
  }
  if (labels_.empty()) throw Error(ErrorCategory::data, file.string(), "needed rows of numbers", "the file has none");
  spec_.classes = *std::max_element(labels_.begin(), labels_.end()) + 1;
}

void CsvSource::add_row(const std::vector<std::string_view>& fields, std::int64_t line) {
  if (labels_.empty()) {
    if (fields.size() < 2) fail(file_, line, 1, "needed a feature and a label", "there is one column");
    spec_.shape = {static_cast<std::int64_t>(fields.size()) - 1};
  }
  const auto columns = static_cast<std::size_t>(spec_.shape[0]) + 1;
  if (fields.size() != columns) {
    fail(file_, line, std::min(fields.size(), columns), fmt::format("needed {} columns, as in the first row", columns),
         fmt::format("there are {}", fields.size()));
  }
  for (std::size_t column = 0; column + 1 < columns; ++column) {
    const auto number = number_in<double>(fields[column]);
    const auto value = static_cast<float>(number.value_or(std::numeric_limits<double>::infinity()));
    if (!std::isfinite(value))
      fail(file_, line, column + 1, "needed a finite number", fmt::format("\"{}\" was given", fields[column]));
    features_.push_back(value);
  }
  const auto label = number_in<std::int32_t>(fields.back());
  if (!label || *label < 0 || *label == std::numeric_limits<std::int32_t>::max()) {
    fail(file_, line, columns, "needed a class number (an integer from 0)",
         fmt::format("\"{}\" was given", fields.back()));
  }
  labels_.push_back(*label);
}

void CsvSource::read(std::int64_t record_id, Sample& sample) const {
  const auto record = static_cast<std::size_t>(record_id);
  const std::size_t count = sample.features.size();
  std::copy_n(features_.begin() + static_cast<std::ptrdiff_t>(record * count), count, sample.features.begin());
  sample.label = labels_[record];
}

}  // namespace lockstep::data
