#include "data/source/csv_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/error.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

}  // namespace

CsvRows::CsvRows(std::string_view text, std::string file) : file_(std::move(file)), rest_(without_mark(text)) {}

void CsvRows::fail(std::size_t column, std::string_view needed, std::string_view given) const {
  throw Error(ErrorCategory::data, fmt::format("{}: line {}, column {}", file_, line_, column + 1), needed, given);
}

void CsvRows::skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlank), rest_.size())); }

bool CsvRows::next() {
  fields_.clear();
  unquoted_.clear();
  for (skip_blanks(); !rest_.empty() && rest_.front() == '\n'; skip_blanks()) {
    rest_.remove_prefix(1);
    ++next_line_;
  }
  if (rest_.empty()) return false;
  line_ = next_line_;
  for (;;) {
    skip_blanks();
    fields_.push_back(rest_.starts_with('"') ? take_quoted() : take_plain());
    if (at_end_of_line()) break;
    rest_.remove_prefix(1);  // the comma
  }
  if (!rest_.empty()) rest_.remove_prefix(1);
  ++next_line_;
  return true;
}

std::string_view CsvRows::take_plain() {
  std::string_view field = rest_.substr(0, rest_.find_first_of(",\n"));
  rest_.remove_prefix(field.size());
  field = field.substr(0, field.find_last_not_of(kBlank) + 1);
  if (field.find('"') != std::string_view::npos)
    fail(fields_.size(), "needed quotes around a whole field, and doubled ones within it",
         fmt::format("got {}", field));
  return field;
}

std::string_view CsvRows::take_quoted() {
  rest_.remove_prefix(1);
  std::size_t end = 0;
  bool has_doubled = false;
  for (;; end += 2) {
    end = rest_.find('"', end);
    if (end == std::string_view::npos)
      fail(fields_.size(), "needed a quote that closes the field", "the file ends without one");
    if (end + 1 == rest_.size() || rest_[end + 1] != '"') break;
    has_doubled = true;
  }
  std::string_view field = rest_.substr(0, end);
  next_line_ += std::ranges::count(field, '\n');
  rest_.remove_prefix(end + 1);
  skip_blanks();
  if (!at_end_of_line() && rest_.front() != ',')
    fail(fields_.size(), "needed a comma or the end of the line after the closing quote",
         fmt::format("got {}", rest_.front()));
  if (!has_doubled) return field;
  std::string& text = unquoted_.emplace_back();
  for (std::size_t i = 0; i < field.size(); ++i) {
    text.push_back(field[i]);
    if (field[i] == '"') ++i;
  }
  return text;
}

}  // namespace lockstep::data
