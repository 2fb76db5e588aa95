#include "lockstep/data/source/file_options.h"

#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/fields/spec.h"

namespace lockstep::inline v0::data {

namespace {

constexpr auto kHeaders = enum_names<CsvHeader>(
    {{CsvHeader::automatic, "auto"}, {CsvHeader::yes, "yes"}, {CsvHeader::no, "no"}});
constexpr auto kSeparators = enum_names<char>({{',', "comma"},
                                               {';', "semicolon"},
                                               {'\t', "tab"},
                                               {'|', "pipe"},
                                               {',', ","},
                                               {';', ";"},
                                               {'|', "|"}});
constexpr auto kEncodings = enum_names<TextEncoding>({{TextEncoding::utf8, "utf8"},
                                                      {TextEncoding::latin1, "latin1"},
                                                      {TextEncoding::utf8, "utf-8"},
                                                      {TextEncoding::latin1, "latin-1"}});
constexpr auto kUnknown = enum_names<bool>({{true, "column"}, {false, "error"}});

}  // namespace

CsvSpec CsvSpec::parse(std::string_view text, const std::string& where) {
  constexpr auto kMaxRows = static_cast<double>(TableWindow::kMaxRows);
  Spec spec = Spec::of_path(where, text);
  CsvOptions options;
  spec.read("label", options.label);
  spec.read("targets", options.targets);
  spec.read("columns", options.columns);
  spec.read("drop", options.leave_out);
  spec.read("categorical", options.categorical);
  spec.read_parsed("scale", options.scale, parse_scale);
  spec.read("keep", options.keep);
  spec.read_parsed("missing", options.missing, MissingValues::parse);
  spec.read("header", options.header, kHeaders);
  spec.read("sep", options.separator, kSeparators);
  spec.read("encoding", options.encoding, kEncodings);
  spec.read_parsed("unknown", options.unknown_column,
                   [&](const std::string& value) { return kUnknown.parse(where, value); });
  spec.read("features", options.features);
  spec.read("like", options.like);
  spec.read("window", options.window, 1, kMaxRows);
  spec.read("horizon", options.horizon, 0, kMaxRows);
  spec.read("steps", options.steps, 1, kMaxRows);
  spec.read("stride", options.stride, 1, kMaxRows);
  spec.read("series", options.series);
  spec.read("label-words", options.label_words);
  spec.finish();
  return {.file = spec.head(), .options = std::move(options)};
}

}  // namespace lockstep::inline v0::data

namespace lockstep::inline v0 {

using TFRecordFields = Fields<data::TFRecordOptions>;

void TFRecordFields::parse_shape(Options& options, std::string_view /*name*/,
                                 std::span<const std::string> values) {
  const std::string& text = values.back();
  options.input_shape.clear();
  if (text.empty()) return;
  const auto shape = parse_extents(text);
  if (!shape)
    throw Error(ErrorCategory::input, "input-shape",
                "expected positive numbers separated by x, such as 28x28x1",
                fmt::format("got \"{}\"", text));
  options.input_shape = *shape;
}

std::vector<std::string> TFRecordFields::print_shape(const Options& options) {
  if (options.input_shape.empty()) return {};
  return {fmt::format("{}", fmt::join(options.input_shape, "x"))};
}

}  // namespace lockstep::inline v0
