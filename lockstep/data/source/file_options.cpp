#include "lockstep/data/source/file_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

std::vector<std::string> pieces_of(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

namespace {

constexpr auto kOptions = std::to_array<std::string_view>(
    {"label",  "targets", "columns", "leave_out", "drop",    "categorical", "header",
     "sep",    "scale",   "missing", "separator", "unknown", "features",    "like",
     "window", "horizon", "steps",   "stride",    "series",  "label-words"});

/// A number of rows.
std::int64_t rows_of(std::string_view name, const std::string& value, std::int64_t least) {
  const auto rows = parse_number<std::int64_t>(value);
  if (!rows || *rows < least || *rows > TableWindow::kMaxRows)
    throw Error(
        ErrorCategory::input, std::string(name),
        fmt::format("expected a number of rows from {} to {}", least, TableWindow::kMaxRows),
        fmt::format("got \"{}\"", value));
  return *rows;
}

/// Sets the option `name`; false if there is no such option.
bool set_option(CsvOptions& options, std::string_view name, const std::string& value) {
  if (name == "label")
    options.label = value;
  else if (name == "targets")
    options.targets = pieces_of(value, ',');
  else if (name == "columns")
    options.columns = pieces_of(value, ',');
  else if (name == "leave_out" || name == "drop")
    options.leave_out = pieces_of(value, ',');
  else if (name == "categorical")
    options.categorical = pieces_of(value, ',');
  else if (name == "label-words")
    options.label_words = pieces_of(value, '+');
  else if (name == "like")
    options.like = value;
  else if (name == "features")
    options.features = value;
  else if (name == "scale")
    options.scale = parse_scale(value);
  else if (name == "missing")
    options.missing = MissingValues::parse(value);
  else if (name == "window")
    options.window = rows_of(name, value, 1);
  else if (name == "horizon")
    options.horizon = rows_of(name, value, 0);
  else if (name == "steps")
    options.steps = rows_of(name, value, 1);
  else if (name == "stride")
    options.stride = rows_of(name, value, 1);
  else if (name == "series")
    options.series = value;
  else if (name == "header" && (value == "yes" || value == "no" || value == "auto"))
    options.header = value == "yes"  ? CsvHeader::yes
                     : value == "no" ? CsvHeader::no
                                     : CsvHeader::automatic;
  else if ((name == "sep" || name == "separator") &&
           (value == "," || value == ";" || value == "tab" || value == "pipe"))
    options.separator = value == "tab" ? '\t' : value == "pipe" ? '|' : value.front();
  else if (name == "unknown" && (value == "column" || value == "error"))
    options.unknown_column = value == "column";
  else
    return false;
  return true;
}

}  // namespace

CsvOptions CsvOptions::parse(std::string_view text, const std::string& where) {
  CsvOptions options;
  for (const std::string& piece : pieces_of(text, '&')) {
    const std::size_t equals = piece.find('=');
    const bool has_value = equals != std::string::npos && equals + 1 < piece.size();
    const std::string_view name = std::string_view(piece).substr(0, equals);
    bool is_set = false;
    try {
      is_set = has_value && set_option(options, name, piece.substr(equals + 1));
    } catch (const Error& error) {
      throw Error(ErrorCategory::input, where,
                  fmt::format("{} as {}=", error.message().expected, name), error.message().actual);
    }
    if (!is_set)
      throw Error(
          ErrorCategory::input, where,
          "expected label=COLUMN, targets=, columns=, drop= or categorical=COLUMN,COLUMN..., "
          "scale=standard|minmax|none, missing=error|mean|indicator|NUMBER, header=yes|no|auto, "
          "sep=,|;|tab|pipe, unknown=column|error, features=FILE.json, like=FILE, window=ROWS, "
          "horizon=, steps=, stride=, series=COLUMN or label-words=WORD+WORD..., with & between "
          "them",
          std::ranges::count(kOptions, name) > 0 ? fmt::format("got \"{}\"", piece)
                                                 : got_name(name, kOptions));
  }
  return options;
}

CsvSpec CsvSpec::parse(std::string_view text, const std::string& where) {
  const std::size_t mark = text.rfind('?');
  std::error_code ignored;  // a name may have a question mark itself
  if (mark == std::string_view::npos || std::filesystem::is_regular_file(text, ignored))
    return {.file = text};
  return {.file = text.substr(0, mark), .options = CsvOptions::parse(text.substr(mark + 1), where)};
}

}  // namespace lockstep::data

namespace lockstep {

using TFRecordFields = Fields<data::TFRecordOptions>;

void TFRecordFields::parse_shape(Options& options, std::string_view /*name*/,
                                 std::span<const std::string> values) {
  const std::string& text = values.back();
  options.input_shape.clear();
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    const auto extent =
        parse_number<std::int64_t>(std::string_view(text).substr(begin, end - begin));
    if (extent.value_or(0) < 1)
      throw Error(ErrorCategory::input, "input-shape",
                  "expected positive numbers separated by x, such as 28x28x1",
                  fmt::format("got \"{}\"", text));
    options.input_shape.push_back(*extent);
    begin = end + 1;
  }
}

std::vector<std::string> TFRecordFields::print_shape(const Options& options) {
  if (options.input_shape.empty()) return {};
  return {fmt::format("{}", fmt::join(options.input_shape, "x"))};
}

}  // namespace lockstep
