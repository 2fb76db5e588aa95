#include "lockstep/data/record/example.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/record/example_fields.h"
#include "lockstep/data/record/feature_view.h"

namespace lockstep::inline v0::data {
namespace {

Feature materialize(const FeatureView& view) {
  switch (view.kind()) {
    case FeatureKind::missing:
      return {};
    case FeatureKind::bytes: {
      const auto values = view.bytes_list();
      return BytesList(values.begin(), values.end());
    }
    case FeatureKind::floats: {
      FloatList values(view.size());
      view.copy_floats(values);
      return values;
    }
    case FeatureKind::int64s:
      return view.int64s();
  }
  return {};
}

/// The list is serialized separately first: protozero omits a nested message to which nothing was
/// written, but an empty list still has a kind.
void write_feature(protozero::pbf_writer& feature, const Feature& value) {
  std::string message;
  protozero::pbf_writer list(message);
  if (const auto* bytes = std::get_if<BytesList>(&value)) {
    for (const std::string& element : *bytes) list.add_bytes(kListValue, element);
  } else if (const auto* floats = std::get_if<FloatList>(&value)) {
    list.add_packed_float(kListValue, floats->begin(), floats->end());
  } else if (const auto* integers = std::get_if<Int64List>(&value)) {
    list.add_packed_int64(kListValue, integers->begin(), integers->end());
  } else {
    return;
  }
  feature.add_message(kListOf[value.index()], message);
}

}  // namespace

std::string serialize_example(const Example& example) {
  std::string record;
  protozero::pbf_writer message(record);
  protozero::pbf_writer features(message, kFeatures);
  for (const auto& [name, value] : example) {
    protozero::pbf_writer entry(features, kEntry);
    entry.add_string(kKey, name);
    protozero::pbf_writer feature(entry, kValue);
    write_feature(feature, value);
  }
  features.commit();
  return record;
}

Example parse_example(std::string_view record) {
  Example example;
  for_each_feature(record, [&](std::string_view name, const FeatureView& feature) {
    example.insert_or_assign(std::string(name), materialize(feature));
  });
  return example;
}

std::string feature_list(std::string_view record) {
  // The record may be damaged: its values may need many times its size.
  std::map<std::string_view, FeatureKind> kinds;
  for_each_feature(record, [&](std::string_view name, const FeatureView& feature) {
    kinds.insert_or_assign(name, feature.kind());
  });
  std::string list;
  for (const auto& [name, kind] : kinds)
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", name, feature_kind_name(kind));
  return list.empty() ? "no features" : "the features " + list;
}

namespace {

std::string count_of(std::size_t count, FeatureKind kind) {
  return fmt::format("{} value{} of kind {}", count, count == 1 ? "" : "s",
                     feature_kind_name(kind));
}

std::string wanted(const FeatureRequest& request) {
  const std::string values =
      request.length ? count_of(*request.length, request.kind)
                     : fmt::format("values of kind {}", feature_kind_name(request.kind));
  return fmt::format("expected {} in the feature {}", values, request.name);
}

FeatureKind kind_of(const Feature& feature) { return static_cast<FeatureKind>(feature.index()); }

std::size_t length_of(const Feature& feature) {
  if (const auto* bytes = std::get_if<BytesList>(&feature)) return bytes->size();
  if (const auto* floats = std::get_if<FloatList>(&feature)) return floats->size();
  if (const auto* integers = std::get_if<Int64List>(&feature)) return integers->size();
  return 0;
}

void check_request(const FeatureRequest& request) {
  constexpr const char* kWhere = "example reader";
  if (request.kind == FeatureKind::missing)
    throw Error(ErrorCategory::input, kWhere,
                fmt::format("expected the kind of the feature {}", request.name), "got none");
  if (request.missing == Feature()) return;
  const bool is_right_length = !request.length || *request.length == length_of(request.missing);
  if (kind_of(request.missing) != request.kind || !is_right_length)
    throw Error(ErrorCategory::input, kWhere,
                wanted(request) + ", also as the value of records without it",
                "its default is " + count_of(length_of(request.missing), kind_of(request.missing)));
}

void stand_in(const Feature& feature, FeatureValues& values) {
  values.clear();
  if (const auto* bytes = std::get_if<BytesList>(&feature))
    values.bytes.assign(bytes->begin(), bytes->end());
  if (const auto* floats = std::get_if<FloatList>(&feature)) values.floats = *floats;
  if (const auto* integers = std::get_if<Int64List>(&feature)) values.int64s = *integers;
}

void take(const FeatureView& view, const FeatureRequest& request, FeatureValues& values,
          const std::function<std::string()>& where) {
  if (view.kind() == request.kind && (!request.length || view.size() == *request.length)) {
    view.copy_to(values);
    return;
  }
  throw Error(ErrorCategory::data, where(), wanted(request),
              "it has " + count_of(view.size(), view.kind()));
}

}  // namespace

ExampleReader::ExampleReader(std::vector<FeatureRequest> requests)
    : requests_(std::move(requests)) {
  for (const FeatureRequest& request : requests_) {
    check_request(request);
    if (std::ranges::find(names_, request.name) != names_.end())
      throw Error(ErrorCategory::input, "example reader", "expected each feature once",
                  fmt::format("got {} twice", request.name));
    names_.push_back(request.name);
  }
}

void ExampleReader::read(std::string_view record, ExampleValues& values,
                         const std::function<std::string()>& where) const {
  values.views_.resize(requests_.size());
  values.values_.resize(requests_.size());
  try {
    find_features(record, names_, values.views_);
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const FeatureRequest& request = requests_[i];
      const FeatureView& view = values.views_[i];
      if (view.kind() != FeatureKind::missing) {
        take(view, request, values.values_[i], where);
      } else if (request.missing != Feature()) {
        stand_in(request.missing, values.values_[i]);
      } else {
        throw Error(ErrorCategory::data, where(), wanted(request),
                    "the record has " + feature_list(record));
      }
    }
  } catch (const MalformedExample& error) {
    throw Error(ErrorCategory::data, where(), "expected a tf.train.Example", error.what());
  }
}

}  // namespace lockstep::inline v0::data
