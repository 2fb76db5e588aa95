// tf.train.Example: named lists of bytes, floats or integers, in protobuf's wire format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/data/record/feature_view.h"

namespace lockstep::data {

using BytesList = std::vector<std::string>;   ///< A feature's values: texts, or encoded images.
using FloatList = std::vector<float>;         ///< A feature's values: numbers.
using Int64List = std::vector<std::int64_t>;  ///< A feature's values: labels and counts.

/// A value that owns its lists, for writing and for looking at a few. `monostate`: the feature is named but has no
/// kind, which means missing.
using Feature = std::variant<std::monostate, BytesList, FloatList, Int64List>;
using Example = std::map<std::string, Feature>;  ///< A tf.train.Example: features by name.

/// The message, features in the order of their names, numbers packed.
std::string serialize_example(const Example& example);

/// Reads everything. As protobuf does: numbers packed or not, features in any order, the last of several of one name
/// wins, unknown fields are skipped. Throws MalformedExample.
Example parse_example(std::string_view record);

/// "the features image (bytes), label (int64)": what a record has, for messages. Throws MalformedExample.
std::string feature_list(std::string_view record);

// Reads chosen features of tf.train.Example records, checked against what is wanted of them.

/// What is wanted of one feature.
struct FeatureRequest {
  std::string name;                         ///< of the feature
  FeatureKind kind = FeatureKind::missing;  ///< bytes, floats or int64s
  std::optional<std::size_t> length = 1;    ///< values that each record must have; nullopt: any number
  Feature missing = {};  ///< the values of a record that lacks the feature; monostate: lacking it is an error
};

/// The values of one record's features, by the number of their request. Valid until the next record is read into it;
/// bytes moreover as long as the record. One for each thread: it keeps its memory.
class ExampleValues {
 public:
  /// The values of request number `request` in the record read last; empty where it has another kind.
  std::span<const std::string_view> bytes(std::size_t request) const { return values_.at(request).bytes; }
  /// The same of floats.
  std::span<const float> floats(std::size_t request) const { return values_.at(request).floats; }
  /// The same of integers.
  std::span<const std::int64_t> int64s(std::size_t request) const { return values_.at(request).int64s; }
  /// Whether the record lacks the feature, so that its values are those of the request.
  bool is_missing(std::size_t request) const { return views_.at(request).kind() == FeatureKind::missing; }

 private:
  friend class ExampleReader;
  std::vector<FeatureView> views_;
  std::vector<FeatureValues> values_;
};

/// One pass over a record, whatever the order of its features; those that nobody asked for are not looked at. Any
/// number of threads.
///
///     const ExampleReader reader({{"image", FeatureKind::bytes},
///                                 {"boxes", FeatureKind::floats, std::nullopt, FloatList{}},
///                                 {"label", FeatureKind::int64s, 1, Int64List{-1}}});
///     ExampleValues values;
///     for (std::string_view record; records.next(record);) {
///       reader.read(record, values, [&] { return records.location().text(); });
///       use(values.bytes(0)[0], values.floats(1), values.int64s(2)[0]);
///     }
class ExampleReader {
 public:
  /// Throws Error (input) for two requests of one name, one without a kind, and values for `missing` that do not fit
  /// their request.
  explicit ExampleReader(std::vector<FeatureRequest> requests);

  const std::vector<FeatureRequest>& requests() const { return requests_; }  ///< as given

  /// `where` names the record in a message; it is called for that alone. Throws Error (data) for a record that is no
  /// tf.train.Example, and for a feature that is missing, of another kind or of another length.
  void read(std::string_view record, ExampleValues& values, const std::function<std::string()>& where) const;

 private:
  std::vector<FeatureRequest> requests_;
  std::vector<std::string> names_;
};

}  // namespace lockstep::data
