// Schemas of tables as text and JSON, in options, features files and checkpoints.
#include "lockstep/data/table/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/compression.h"

namespace lockstep::inline v0::data {
namespace {

using Kind = TableFeature::Kind;
using nlohmann::json;

constexpr auto kScales = enum_names<ColumnScale>({{ColumnScale::none, "none"},
                                                  {ColumnScale::standard, "standard"},
                                                  {ColumnScale::minmax, "minmax"}});
constexpr auto kFeatureKinds = enum_names<Kind>({{Kind::numeric, "numeric"},
                                                 {Kind::bucketized, "bucketized"},
                                                 {Kind::categorical, "categorical"},
                                                 {Kind::hashed, "hashed"},
                                                 {Kind::crossed, "crossed"}});
constexpr auto kDateParts = enum_names<DatePart>({{DatePart::days, "days"},
                                                  {DatePart::year, "year"},
                                                  {DatePart::month, "month"},
                                                  {DatePart::weekday, "weekday"}});
constexpr auto kOutputs = enum_names<CategoryOutput>({{CategoryOutput::one_hot, "one-hot"},
                                                      {CategoryOutput::multi_hot, "multi-hot"},
                                                      {CategoryOutput::index, "index"}});

// Problems are std::invalid_argument, which the callers convert to an Error with the location.

[[noreturn]] void refuse_member(const char* key, const std::string& expected, const json& value) {
  throw std::invalid_argument(
      fmt::format("expected \"{}\" to be {}, got {}", key, expected, describe_json(value)));
}

double number_of(const json& value, const char* key, double unit = 1) {
  if (!value.is_number()) refuse_member(key, "a number", value);
  const double number = value.get<double>();
  if (!fits_float(number / unit)) refuse_member(key, "a number that fits a float", value);
  return number;
}

std::int64_t integer_of(const json& value, const char* key, std::int64_t lowest,
                        std::int64_t highest) {
  // nlohmann-json would convert other numbers, even those that no integer can represent.
  if (value.is_number_integer())
    if (const auto count = value.get<std::int64_t>(); count >= lowest && count <= highest)
      return count;
  refuse_member(key, fmt::format("a whole number from {} to {}", lowest, highest), value);
}

std::string text_in(const json& value, const char* key) {
  if (!value.is_string()) refuse_member(key, "text", value);
  return value.get<std::string>();
}

bool flag_of(const json& value, const char* key) {
  if (!value.is_boolean()) refuse_member(key, "true or false", value);
  return value.get<bool>();
}

std::vector<std::string> texts_of(const json& value, const char* key) {
  if (!value.is_array()) refuse_member(key, "a list", value);
  std::vector<std::string> texts;
  for (const json& text : value) texts.push_back(text_in(text, key));
  if (std::set<std::string>(texts.begin(), texts.end()).size() != texts.size())
    throw std::invalid_argument(fmt::format("expected different texts in \"{}\"", key));
  return texts;
}

std::vector<double> numbers_of(const json& value, const char* key) {
  if (!value.is_array()) refuse_member(key, "a list", value);
  std::vector<double> numbers;
  for (const json& number : value) numbers.push_back(number_of(number, key));
  return numbers;
}

template <typename Names>
auto enum_of(const Names& names, const json& value, const char* key) {
  try {
    return names.parse(key, text_in(value, key));
  } catch (const Error& error) {
    throw std::invalid_argument(
        fmt::format("{} as \"{}\", {}", error.message().expected, key, error.message().actual));
  }
}

using Keys = std::vector<std::string_view>;

/// The keys that features of this kind may have.
Keys keys_of(Kind kind) {
  switch (kind) {
    case Kind::numeric:
      return {"kind",  "column", "date",    "missing", "clip",     "log",
              "scale", "offset", "divisor", "fill",    "indicator"};
    case Kind::bucketized:
      return {"kind", "column", "date", "missing", "clip", "log", "boundaries", "indicator"};
    case Kind::categorical:
      return {"kind", "column", "vocabulary", "unknown", "output", "separator"};
    case Kind::hashed:
      return {"kind", "column", "buckets", "output", "separator"};
    case Kind::crossed:
      return {"kind", "columns", "buckets", "output"};
  }
  return {};
}

void check_keys(const json& object, const Keys& keys, std::string_view what) {
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(keys, key) == keys.end())
      throw std::invalid_argument(
          fmt::format("expected {} of {}, {}", list_names(keys), what, got_name(key, keys)));
}

void check_feature(const TableFeature& feature) {
  const auto require = [](bool holds, const char* expected) {
    if (!holds) throw std::invalid_argument(expected);
  };
  if (feature.kind == Kind::bucketized) {
    require(!feature.boundaries.empty() && std::ranges::is_sorted(feature.boundaries) &&
                std::ranges::adjacent_find(feature.boundaries) == feature.boundaries.end(),
            "expected \"boundaries\" in ascending order");
    require(feature.missing.rule != MissingValues::Rule::mean,
            "expected \"missing\" to be error, indicator or a number, got mean");
  }
  require(!feature.lowest || !feature.highest || *feature.lowest < *feature.highest,
          "expected \"clip\" to be [lowest, highest]");
  require(feature.kind != Kind::crossed || feature.columns.size() >= 2,
          "expected \"columns\" with at least two columns");
  require((feature.kind != Kind::hashed && feature.kind != Kind::crossed) || feature.buckets > 0,
          "expected \"buckets\", the number of categories");
  require(feature.divisor >= 0, "expected \"divisor\" to be at least 0");
  require(feature.kind != Kind::crossed || feature.output != CategoryOutput::multi_hot,
          "expected \"output\" to be one-hot or index for crossed columns, got multi-hot");
}

TableFeature feature_from(const json& object) {
  if (!object.is_object())
    throw std::invalid_argument("expected an object, got " + describe_json(object));
  TableFeature feature;
  if (object.contains("kind")) feature.kind = enum_of(kFeatureKinds, object["kind"], "kind");
  check_keys(object, keys_of(feature.kind),
             fmt::format("a {} feature", kFeatureKinds.name(feature.kind)));
  const auto with = [&](const char* key, auto use) {
    if (const auto found = object.find(key); found != object.end()) use(*found, key);
    return object.contains(key);
  };
  const char* const source = feature.kind == Kind::crossed ? "columns" : "column";
  if (!object.contains(source)) throw std::invalid_argument(fmt::format("expected \"{}\"", source));
  feature.columns = feature.kind == Kind::crossed
                        ? texts_of(object[source], source)
                        : std::vector<std::string>{text_in(object[source], source)};
  with("date", [&](auto& v, auto k) { feature.date = enum_of(kDateParts, v, k); });
  with("missing", [&](auto& v, auto k) {
    if (v.is_number())
      feature.missing = {MissingValues::Rule::value, number_of(v, k)};
    else
      try {
        feature.missing = MissingValues::parse(text_in(v, k));
      } catch (const Error& error) {
        throw std::invalid_argument(
            fmt::format("{}, {}", error.message().expected, error.message().actual));
      }
  });
  with("clip", [&](auto& v, auto k) {
    if (!v.is_array() || v.size() != 2) refuse_member(k, "[lowest, highest]", v);
    if (!v[0].is_null()) feature.lowest = number_of(v[0], k);
    if (!v[1].is_null()) feature.highest = number_of(v[1], k);
  });
  with("log", [&](auto& v, auto k) { feature.log = flag_of(v, k); });
  if (feature.kind == Kind::numeric) feature.scale = ColumnScale::standard;
  with("scale", [&](auto& v, auto k) { feature.scale = enum_of(kScales, v, k); });
  with("boundaries", [&](auto& v, auto k) { feature.boundaries = numbers_of(v, k); });
  with("buckets",
       [&](auto& v, auto k) { feature.buckets = integer_of(v, k, 1, TableSchema::kMaxFeatures); });
  with("unknown", [&](auto& v, auto k) {
    const std::string text = text_in(v, k);
    if (text != "column" && text != "error") refuse_member(k, "column or error", v);
    feature.unknown_column = text == "column";
  });
  with("output", [&](auto& v, auto k) { feature.output = enum_of(kOutputs, v, k); });
  with("separator", [&](auto& v, auto k) {
    const std::string text = text_in(v, k);
    if (text.size() != 1) refuse_member(k, "one character", v);
    feature.separator = text.front();
  });
  const bool has_indicator =
      with("indicator", [&](auto& v, auto k) { feature.has_indicator = flag_of(v, k); });
  const bool has_fill = with("fill", [&](auto& v, auto k) { feature.fill = number_of(v, k); });
  const bool has_offset =
      with("offset", [&](auto& v, auto k) { feature.offset = number_of(v, k); });
  const bool has_divisor = with("divisor", [&](auto& v, auto k) {
    feature.divisor = number_of(v, k, 2);
  });  // up to max - min
  if (has_offset != has_divisor)
    throw std::invalid_argument("expected both \"offset\" and \"divisor\"");
  const bool is_numeric = feature.kind == Kind::numeric;
  if (is_numeric && !has_offset && (has_fill || has_indicator))
    throw std::invalid_argument("expected \"offset\" and \"divisor\" with \"fill\", \"indicator\"");
  using Rule = MissingValues::Rule;
  const bool is_indicated = feature.missing.rule == Rule::indicator;
  if (has_offset && (is_indicated || feature.missing.rule == Rule::mean) &&
      (!has_fill || has_indicator < is_indicated))
    throw std::invalid_argument(
        fmt::format("expected \"fill\", the number instead of missing ones{}, with \"offset\"",
                    is_indicated ? ", and \"indicator\", true or false" : ""));
  const bool has_words =
      with("vocabulary", [&](auto& v, auto k) { feature.vocabulary = texts_of(v, k); });
  feature.is_learned = has_offset || has_words || has_indicator || feature.kind == Kind::hashed ||
                       feature.kind == Kind::crossed;
  check_feature(feature);
  return feature;
}

json json_of(const TableFeature& feature) {
  json object = {{"kind", kFeatureKinds.name(feature.kind)}};
  if (feature.kind == Kind::crossed)
    object["columns"] = feature.columns;
  else
    object["column"] = feature.columns.front();
  if (feature.has_numbers()) {
    if (feature.date != DatePart::none) object["date"] = kDateParts.name(feature.date);
    using Rule = MissingValues::Rule;
    if (feature.missing.rule == Rule::value)
      object["missing"] = feature.missing.value;
    else if (feature.missing.rule != Rule::error)
      object["missing"] = feature.missing.rule == Rule::mean ? "mean" : "indicator";
    const auto bound = [](const std::optional<double>& end) { return end ? json(*end) : json(); };
    if (feature.lowest || feature.highest)
      object["clip"] = {bound(feature.lowest), bound(feature.highest)};
    if (feature.log) object["log"] = true;
    object["indicator"] = feature.has_indicator;
  }
  if (feature.kind == Kind::numeric) {
    object["scale"] = kScales.name(feature.scale);
    object["offset"] = feature.offset;
    object["divisor"] = feature.divisor;
    object["fill"] = feature.fill;
    return object;
  }
  if (feature.kind == Kind::bucketized) {
    object["boundaries"] = feature.boundaries;
    return object;
  }
  object["output"] = kOutputs.name(feature.output);
  if (feature.kind == Kind::categorical) {
    object["vocabulary"] = feature.vocabulary;
    object["unknown"] = feature.unknown_column ? "column" : "error";
  } else {
    object["buckets"] = feature.buckets;
  }
  if (feature.kind != Kind::crossed) object["separator"] = std::string(1, feature.separator);
  return object;
}

constexpr const char* kWindow = "window";

TableWindow window_from(const json& object) {
  if (!object.is_object()) refuse_member(kWindow, "an object", object);
  check_keys(object, {"rows", "horizon", "steps", "stride", "series"}, "a window");
  TableWindow window;
  const auto number = [&](const char* key, std::int64_t& member, std::int64_t lowest) {
    if (const auto found = object.find(key); found != object.end())
      member = integer_of(*found, key, lowest, TableWindow::kMaxRows);
  };
  if (!object.contains("rows")) throw std::invalid_argument("expected \"rows\" of a window");
  number("rows", window.rows, 1);
  number("horizon", window.horizon, 0);
  number("steps", window.steps, 1);
  number("stride", window.stride, 1);
  if (object.contains("series")) window.series = text_in(object["series"], "series");
  return window;
}

json json_of(const TableWindow& window) {
  json object = {{"rows", window.rows},
                 {"horizon", window.horizon},
                 {"steps", window.steps},
                 {"stride", window.stride}};
  if (!window.series.empty()) object["series"] = window.series;
  return object;
}

json json_of(const TableCounts& counts) {
  json object = {{"rows", counts.rows}};
  const auto add = [&](const char* key, const auto& list) {
    if (!list.empty()) object[key] = list;
  };
  const auto add_counts = [&](const char* key, const std::vector<std::int64_t>& list) {
    if (std::ranges::any_of(list, [](std::int64_t count) { return count > 0; })) object[key] = list;
  };
  add_counts("missing", counts.missing);
  add_counts("unknown", counts.unknown);
  add("classes", counts.classes);
  add("distinct", counts.distinct);
  add("unnamed", counts.unnamed);
  add("identifiers", counts.identifiers);
  add("empty", counts.empty);
  return object;
}

TableCounts counts_from(const json& object, std::size_t features) {
  if (!object.is_object()) refuse_member("counts", "an object", object);
  check_keys(
      object,
      {"rows", "missing", "unknown", "classes", "distinct", "unnamed", "identifiers", "empty"},
      "counts");
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto numbers = [&](const char* key) {
    std::vector<std::int64_t> list;
    if (!object.contains(key)) return list;
    if (!object[key].is_array()) refuse_member(key, "a list", object[key]);
    for (const json& number : object[key]) list.push_back(integer_of(number, key, 0, kMax));
    return list;
  };
  const auto counts_of_features = [&](const char* key) {
    auto list = numbers(key);
    if (!list.empty() && list.size() != features)
      throw std::invalid_argument(fmt::format("expected \"{}\" of each feature", key));
    list.resize(features);
    return list;
  };
  const auto names = [&](const char* key) {
    return object.contains(key) ? texts_of(object[key], key) : std::vector<std::string>();
  };
  return {.rows = object.contains("rows") ? integer_of(object["rows"], "rows", 0, kMax) : 0,
          .missing = counts_of_features("missing"),
          .unknown = counts_of_features("unknown"),
          .classes = numbers("classes"),
          .distinct = names("distinct"),
          .unnamed = names("unnamed"),
          .identifiers = names("identifiers"),
          .empty = names("empty")};
}

TableSchema schema_from(const json& object) {
  if (!object.is_object())
    throw std::invalid_argument("expected an object, got " + describe_json(object));
  check_keys(object,
             {"features", "label", "targets", "drop", "columns", "header", "classes", "class_names",
              "labels_are_words", "counts", kWindow},
             "a table");
  TableSchema schema;
  const auto with = [&](const char* key, auto use) {
    if (const auto found = object.find(key); found != object.end()) use(*found, key);
  };
  with("label", [&](auto& v, auto k) { schema.label = text_in(v, k); });
  with("targets", [&](auto& v, auto k) { schema.targets = texts_of(v, k); });
  with("drop", [&](auto& v, auto k) { schema.left_out = texts_of(v, k); });
  with("columns", [&](auto& v, auto k) { schema.columns = texts_of(v, k); });
  with("header", [&](auto& v, auto k) { schema.has_header = flag_of(v, k); });
  with("class_names", [&](auto& v, auto k) { schema.class_names = texts_of(v, k); });
  with("labels_are_words", [&](auto& v, auto k) { schema.labels_are_words = flag_of(v, k); });
  with("classes", [&](auto& v, auto k) {
    schema.classes = integer_of(v, k, 0, std::numeric_limits<std::int32_t>::max());
  });
  if (!schema.class_names.empty() &&
      schema.classes != static_cast<std::int64_t>(schema.class_names.size()))
    throw std::invalid_argument("expected as many \"class_names\" as \"classes\"");
  with(kWindow, [&](auto& v, auto) { schema.window = window_from(v); });
  std::int64_t width = 0;
  with("features", [&](auto& v, auto k) {
    if (!v.is_array()) refuse_member(k, "a list", v);
    for (std::size_t i = 0; i < v.size(); ++i) try {
        schema.features.push_back(feature_from(v[i]));
        width += schema.features.back().width();
        if (width > TableSchema::kMaxFeatures)
          throw std::invalid_argument(fmt::format("expected at most {} features, got {}",
                                                  TableSchema::kMaxFeatures, width));
      } catch (const std::invalid_argument& reason) {
        throw std::invalid_argument(fmt::format("feature {}: {}", i + 1, reason.what()));
      }
  });
  with("counts", [&](auto& v, auto) { schema.counts = counts_from(v, schema.features.size()); });
  return schema;
}

}  // namespace

ColumnScale parse_scale(std::string_view name) { return kScales.parse("scale", name); }

MissingValues MissingValues::parse(std::string_view text) {
  if (text == "error") return {};
  if (text == "mean") return {Rule::mean, 0};
  if (text == "indicator") return {Rule::indicator, 0};
  const auto number = parse_number<double>(text);
  if (!number || !fits_float(*number))
    throw Error(ErrorCategory::input, "missing",
                number ? "expected a number that fits a float"
                       : "expected error, mean, indicator or a number",
                fmt::format("got \"{}\"", text));
  return {Rule::value, *number};
}

TableSchema TableSchema::from_file(const std::string& path) {
  // One byte more than parse_json() accepts, so that it rejects a larger file.
  const std::string text = read_up_to(InputFile(path), Compression::none, JsonLimits{}.bytes + 1);
  try {
    return schema_from(parse_json(text, ErrorCategory::input, path));
  } catch (const std::invalid_argument& reason) {
    throw Error(ErrorCategory::input, path, "expected the features of a table", reason.what());
  }
}

TableSchema TableSchema::from_checkpoint(const json& stored, const std::string& where) {
  try {
    TableSchema schema = schema_from(stored);
    for (TableFeature& feature : schema.features) feature.is_learned = true;
    if (schema.columns.empty() || schema.features.empty())
      throw std::invalid_argument("expected columns and features");
    if (!schema.label.empty() && !schema.targets.empty())
      throw std::invalid_argument("expected a label or targets");
    if (schema.labels_are_words && schema.class_names.empty())
      throw std::invalid_argument("expected names of classes");
    if (schema.window.steps > 1 && schema.targets.empty())
      throw std::invalid_argument("expected targets with several steps");
    if (std::ssize(schema.targets) * schema.window.steps > TableSchema::kMaxFeatures)
      throw std::invalid_argument(
          fmt::format("expected at most {} targets", TableSchema::kMaxFeatures));
    return schema;
  } catch (const std::invalid_argument& reason) {
    throw Error(ErrorCategory::checkpoint, where, "expected the description of a table",
                reason.what());
  }
}

json TableSchema::to_json() const {
  json list = json::array();
  for (const TableFeature& feature : features) list.push_back(json_of(feature));
  json object = {{"columns", columns},
                 {"header", has_header},
                 {"features", std::move(list)},
                 {"counts", json_of(counts)}};
  if (!left_out.empty()) object["drop"] = left_out;
  if (!targets.empty()) object["targets"] = targets;
  if (window.rows > 0) object[kWindow] = json_of(window);
  if (label.empty()) return object;
  object["label"] = label;
  object["classes"] = classes;
  object["labels_are_words"] = labels_are_words;
  if (!class_names.empty()) object["class_names"] = class_names;
  return object;
}

json TableSchema::summary_json() const {
  constexpr std::size_t kMaxColumns = 1000;
  json columns_json = json::array();
  for (std::size_t i = 0; i < std::min(features.size(), kMaxColumns); ++i) {
    json feature = {{"name", fmt::format("{}", fmt::join(features[i].columns, " x "))},
                    {"kind", kFeatureKinds.name(features[i].kind)},
                    {"missing", i < counts.missing.size() ? counts.missing[i] : 0}};
    if (features[i].date != DatePart::none) feature["date"] = kDateParts.name(features[i].date);
    if (!features[i].has_numbers()) feature["values"] = features[i].values();
    if (features[i].unknown_column)
      feature["unknown"] = i < counts.unknown.size() ? counts.unknown[i] : 0;
    columns_json.push_back(std::move(feature));
  }
  json object = {{"header", has_header},
                 {"rows", counts.rows},
                 {"features", features.size()},
                 {"columns", std::move(columns_json)},
                 {"left_out", left_out}};
  if (!counts.identifiers.empty()) object["identifiers"] = counts.identifiers;
  if (!targets.empty()) object["targets"] = targets;
  if (label.empty()) return object;
  object["label"] = label;
  json classes_json = json::array();
  for (std::size_t i = 0; i < std::min(counts.classes.size(), kMaxColumns); ++i)
    classes_json.push_back({{"name", i < class_names.size() ? class_names[i] : std::to_string(i)},
                            {"rows", counts.classes[i]}});
  object["classes"] = std::move(classes_json);
  return object;
}

}  // namespace lockstep::inline v0::data
