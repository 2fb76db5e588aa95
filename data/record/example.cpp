#include "data/record/example.h"

#include <fmt/format.h>

#include <protozero/pbf_writer.hpp>

#include "data/record/example_fields.h"

namespace lockstep::data {
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

/// The list by itself first: protozero leaves a nested message out that nothing was written to, and an empty list has a
/// kind all the same.
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
  std::string list;
  for (const auto& [name, value] : parse_example(record)) {
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", name,
                        feature_kind_name(static_cast<FeatureKind>(value.index())));
  }
  return list.empty() ? "no features" : "the features " + list;
}

}  // namespace lockstep::data
