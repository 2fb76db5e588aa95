#include "lockstep/data/record/feature_view.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <protozero/pbf_reader.hpp>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/data/record/example_fields.h"

namespace lockstep::inline v0::data {
namespace {

constexpr auto kMessage = protozero::pbf_wire_type::length_delimited;
constexpr auto kFixed32 = protozero::pbf_wire_type::fixed32;
constexpr auto kVarint = protozero::pbf_wire_type::varint;

std::string_view to_view(protozero::data_view view) { return {view.data(), view.size()}; }
protozero::data_view to_data_view(std::string_view view) { return {view.data(), view.size()}; }

/// Converts protozero's exceptions to MalformedExample.
template <typename Function>
auto translating_errors(Function function) {
  try {
    return function();
  } catch (const protozero::exception& error) {
    throw MalformedExample(error.what());
  }
}

// The functions below run several times for each record. Without the attribute, GCC inlines them or
// not, depending on what else the file has; it is a tenth of the time of a small record.

/// The effective fields of a map entry.
struct EntryFields {
  std::string_view name;
  std::string_view value;  // the last one
  int values = 0;          // protobuf merges several
};

[[gnu::always_inline]] inline EntryFields fields_of(protozero::data_view entry) {
  EntryFields found;
  protozero::pbf_reader fields(entry);
  while (fields.next()) {
    if (fields.wire_type() == kMessage && fields.tag() == kKey) {
      found.name = to_view(fields.get_view());
    } else if (fields.wire_type() == kMessage && fields.tag() == kValue) {
      found.value = to_view(fields.get_view());
      ++found.values;
    } else {
      fields.skip();
    }
  }
  return found;
}

/// Calls visit(fields, entry) for each map entry, including duplicates.
template <typename Visitor>
void for_each_entry(std::string_view record, Visitor visit) {
  protozero::pbf_reader example(to_data_view(record));
  while (example.next(kFeatures, kMessage)) {
    protozero::pbf_reader features = example.get_message();
    while (features.next(kEntry, kMessage)) {
      const protozero::data_view entry = features.get_view();
      visit(fields_of(entry), to_view(entry));
    }
  }
}

/// Most names of a record differ in the first byte, which avoids a call.
bool are_equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && (a.empty() || (a.front() == b.front() && a == b));
}

FeatureKind kind_of(protozero::pbf_reader& field) {
  if (field.wire_type() != kMessage) return FeatureKind::missing;
  switch (field.tag()) {
    case kListOf[1]:
      return FeatureKind::bytes;
    case kListOf[2]:
      return FeatureKind::floats;
    case kListOf[3]:
      return FeatureKind::int64s;
    default:
      return FeatureKind::missing;
  }
}

/// Calls visit(kind, list message) for each list of an entry, including those that a later list
/// replaces.
template <typename Visitor>
void for_each_list_of(std::string_view entry, Visitor visit) {
  protozero::pbf_reader fields(to_data_view(entry));
  while (fields.next(kValue, kMessage)) {
    protozero::pbf_reader feature = fields.get_message();
    while (feature.next()) {
      const FeatureKind kind = kind_of(feature);
      if (kind == FeatureKind::missing) {
        feature.skip();
      } else {
        visit(kind, feature.get_view());
      }
    }
  }
}

/// Calls visit(bytes) for each run of packed or single 32-bit values.
template <typename Visitor>
void for_each_float_run(protozero::data_view list, Visitor visit) {
  protozero::pbf_reader values(list);
  while (values.next()) {
    if (values.tag() == kListValue && values.wire_type() == kMessage) {
      const protozero::data_view run = values.get_view();
      if (run.size() % sizeof(float) != 0)
        throw MalformedExample(fmt::format("packed floats in {} bytes", run.size()));
      visit(to_view(run));
    } else if (values.tag() == kListValue && values.wire_type() == kFixed32) {
      const float value = values.get_float();
      visit(std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
    } else {
      values.skip();
    }
  }
}

template <typename Visitor>
[[gnu::always_inline]] inline void for_each_int64(protozero::data_view list, Visitor visit) {
  protozero::pbf_reader values(list);
  while (values.next()) {
    if (values.tag() == kListValue && values.wire_type() == kMessage) {
      for (const std::int64_t value : values.get_packed_int64()) visit(value);
    } else if (values.tag() == kListValue && values.wire_type() == kVarint) {
      visit(values.get_int64());
    } else {
      values.skip();
    }
  }
}

template <typename Visitor>
[[gnu::always_inline]] inline void for_each_bytes(protozero::data_view list, Visitor visit) {
  protozero::pbf_reader values(list);
  while (values.next(kListValue, kMessage)) visit(to_view(values.get_view()));
}

}  // namespace

std::string_view feature_kind_name(FeatureKind kind) {
  static constexpr auto kKinds = enum_names<FeatureKind>({{FeatureKind::missing, "missing"},
                                                          {FeatureKind::bytes, "bytes"},
                                                          {FeatureKind::floats, "float"},
                                                          {FeatureKind::int64s, "int64"}});
  return kKinds.name(kind);
}

void FeatureValues::clear() {
  bytes.clear();
  floats.clear();
  int64s.clear();
}

void find_features(std::string_view record, std::span<const std::string> names,
                   std::span<FeatureView> features) {
  LOCKSTEP_CHECK_OP(names.size(), ==, features.size());
  for (FeatureView& feature : features) feature = FeatureView();
  translating_errors([&] {
    for_each_entry(record, [&](const EntryFields& fields, std::string_view entry) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        // Constructed in place: copying an object just written in small pieces would stall.
        if (are_equal(names[i], fields.name))
          std::construct_at(&features[i], entry, fields.value, fields.values);
      }
    });
  });
}

FeatureView find_feature(std::string_view record, const std::string& name) {
  FeatureView feature;
  find_features(record, {&name, 1}, {&feature, 1});
  return feature;
}

FeatureView::FeatureView(std::string_view entry, std::string_view value, int values)
    : entry_(entry) {
  translating_errors([&] {
    // The usual case: one list and nothing else.
    protozero::pbf_reader feature(to_data_view(value));
    if (values == 1 && feature.next()) {
      kind_ = kind_of(feature);
      if (kind_ != FeatureKind::missing) {
        last_list_ = to_view(feature.get_view());
        has_one_list_ = true;
        if (feature.length() == 0) return;
      }
    }
    kind_ = FeatureKind::missing;
    std::size_t lists = 0;
    for_each_list_of(entry_, [&](FeatureKind kind, protozero::data_view message) {
      if (kind != kind_) first_list_ = lists;
      kind_ = kind;
      last_list_ = to_view(message);
      ++lists;
    });
    has_one_list_ = lists == first_list_ + 1;
  });
}

/// Calls visit(list message) for the effective lists: protobuf merges several of the same kind, and
/// drops those before a change of kind.
template <typename Visitor>
void FeatureView::for_each_list(Visitor visit) const {
  translating_errors([&] {
    if (has_one_list_) return visit(to_data_view(last_list_));
    std::size_t list = 0;
    for_each_list_of(entry_, [&](FeatureKind, protozero::data_view message) {
      if (list++ >= first_list_) visit(message);
    });
  });
}

std::size_t FeatureView::size() const {
  std::size_t count = 0;
  for_each_list([&](protozero::data_view list) {
    switch (kind_) {
      case FeatureKind::missing:
        break;
      case FeatureKind::bytes:
        for_each_bytes(list, [&](std::string_view) { ++count; });
        break;
      case FeatureKind::floats:
        for_each_float_run(list,
                           [&](std::string_view run) { count += run.size() / sizeof(float); });
        break;
      case FeatureKind::int64s:
        for_each_int64(list, [&](std::int64_t) { ++count; });
        break;
    }
  });
  return count;
}

std::string_view FeatureView::bytes(std::size_t index) const {
  LOCKSTEP_CHECK(kind_ == FeatureKind::bytes);
  std::optional<std::string_view> found;
  std::size_t at = 0;
  for_each_list([&](protozero::data_view list) {
    for_each_bytes(list, [&](std::string_view value) {
      if (at++ == index) found = value;
    });
  });
  LOCKSTEP_CHECK_OP(index, <, at);
  return *found;
}

std::optional<std::string_view> FeatureView::single_bytes() const {
  std::size_t count = 0;
  std::string_view value;
  if (kind_ != FeatureKind::bytes) return std::nullopt;
  for_each_list([&](protozero::data_view list) {
    for_each_bytes(list, [&](std::string_view element) {
      value = element;
      ++count;
    });
  });
  return count == 1 ? std::optional(value) : std::nullopt;
}

std::vector<std::string_view> FeatureView::bytes_list() const {
  LOCKSTEP_CHECK(kind_ == FeatureKind::bytes);
  FeatureValues values;
  copy_to(values);
  return std::move(values.bytes);
}

void FeatureView::copy_floats(std::span<float> out) const {
  LOCKSTEP_CHECK(kind_ == FeatureKind::floats);
  auto rest = std::as_writable_bytes(out);
  for_each_list([&](protozero::data_view list) {
    for_each_float_run(list, [&](std::string_view run) {
      if (run.empty()) return;
      LOCKSTEP_CHECK_OP(run.size(), <=, rest.size());
      std::memcpy(rest.data(), run.data(), run.size());
      rest = rest.subspan(run.size());
    });
  });
  LOCKSTEP_CHECK_OP(rest.size(), ==, 0u);
}

std::optional<std::int64_t> FeatureView::single_int64() const {
  std::size_t count = 0;
  std::int64_t value = 0;
  if (kind_ != FeatureKind::int64s) return std::nullopt;
  for_each_list([&](protozero::data_view list) {
    for_each_int64(list, [&](std::int64_t element) {
      value = element;
      ++count;
    });
  });
  return count == 1 ? std::optional(value) : std::nullopt;
}

std::vector<std::int64_t> FeatureView::int64s() const {
  LOCKSTEP_CHECK(kind_ == FeatureKind::int64s);
  FeatureValues values;
  copy_to(values);
  return std::move(values.int64s);
}

void FeatureView::copy_to(FeatureValues& values) const {
  values.clear();
  for_each_list([&](protozero::data_view list) {
    switch (kind_) {
      case FeatureKind::missing:
        break;
      case FeatureKind::bytes:
        for_each_bytes(list, [&](std::string_view value) { values.bytes.push_back(value); });
        break;
      case FeatureKind::floats:
        for_each_float_run(list, [&](std::string_view run) {
          const std::size_t before = values.floats.size();
          values.floats.resize(before + run.size() / sizeof(float));
          if (!run.empty()) std::memcpy(values.floats.data() + before, run.data(), run.size());
        });
        break;
      case FeatureKind::int64s:
        for_each_int64(list, [&](std::int64_t value) { values.int64s.push_back(value); });
        break;
    }
  });
}

void for_each_feature(std::string_view record,
                      const std::function<void(std::string_view, const FeatureView&)>& visit) {
  translating_errors([&] {
    for_each_entry(record, [&](const EntryFields& fields, std::string_view entry) {
      visit(fields.name, FeatureView(entry, fields.value, fields.values));
    });
  });
}

}  // namespace lockstep::inline v0::data
