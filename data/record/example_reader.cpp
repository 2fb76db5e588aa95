#include "data/record/example_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/error.h"

namespace lockstep::data {
namespace {

std::string count_of(std::size_t count, FeatureKind kind) {
  return fmt::format("{} value{} of kind {}", count, count == 1 ? "" : "s", feature_kind_name(kind));
}

std::string wanted(const FeatureRequest& request) {
  const std::string values = request.length ? count_of(*request.length, request.kind)
                                            : fmt::format("values of kind {}", feature_kind_name(request.kind));
  return fmt::format("needed {} in the feature {}", values, request.name);
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
    throw Error(ErrorCategory::input, kWhere, fmt::format("needed the kind of the feature {}", request.name),
                "none was given");
  if (request.missing == Feature()) return;
  const bool is_right_length = !request.length || *request.length == length_of(request.missing);
  if (kind_of(request.missing) != request.kind || !is_right_length)
    throw Error(ErrorCategory::input, kWhere, wanted(request) + ", also where a record lacks it",
                "it would be " + count_of(length_of(request.missing), kind_of(request.missing)));
}

void stand_in(const Feature& feature, FeatureValues& values) {
  values.clear();
  if (const auto* bytes = std::get_if<BytesList>(&feature)) values.bytes.assign(bytes->begin(), bytes->end());
  if (const auto* floats = std::get_if<FloatList>(&feature)) values.floats = *floats;
  if (const auto* integers = std::get_if<Int64List>(&feature)) values.int64s = *integers;
}

void take(const FeatureView& view, const FeatureRequest& request, FeatureValues& values,
          const std::function<std::string()>& where) {
  const bool is_right_kind = view.kind() == request.kind;
  if (is_right_kind) view.copy_to(values);
  if (is_right_kind && request.length.value_or(values.size()) == values.size()) return;
  throw Error(ErrorCategory::data, where(), wanted(request), "it has " + count_of(view.size(), view.kind()));
}

}  // namespace

ExampleReader::ExampleReader(std::vector<FeatureRequest> requests) : requests_(std::move(requests)) {
  for (const FeatureRequest& request : requests_) {
    check_request(request);
    if (std::ranges::find(names_, request.name) != names_.end())
      throw Error(ErrorCategory::input, "example reader", "needed each feature once",
                  fmt::format("{} was given twice", request.name));
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
        throw Error(ErrorCategory::data, where(), wanted(request), "the record has " + feature_list(record));
      }
    }
  } catch (const MalformedExample& error) {
    throw Error(ErrorCategory::data, where(), "needed a tf.train.Example", error.what());
  }
}

}  // namespace lockstep::data
