// tf.train.Example: named lists of bytes, floats or integers, in the protobuf wire format.
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

namespace lockstep::inline v0::data {

using BytesList = std::vector<std::string>;  ///< The values of a feature: texts, or encoded images.
using FloatList = std::vector<float>;        ///< The values of a feature: numbers.
using Int64List = std::vector<std::int64_t>;  ///< The values of a feature: labels and counts.

/// A feature that owns its values. `monostate`: the feature has a name but no kind, and counts as
/// missing.
using Feature = std::variant<std::monostate, BytesList, FloatList, Int64List>;
using Example = std::map<std::string, Feature>;  ///< A tf.train.Example: features by name.

/// Serializes the message, with features sorted by name and numbers packed.
std::string serialize_example(const Example& example);

/// Parses all features. As in protobuf: numbers may be packed or not, features in any order, the
/// last of several with the same name wins, unknown fields are skipped. Throws MalformedExample.
Example parse_example(std::string_view record);

/// The features of a record for messages: "the features image (bytes), label (int64)". Throws
/// MalformedExample.
std::string feature_list(std::string_view record);

// Reads selected features of tf.train.Example records and checks their kind and length.

/// The requirements on one feature.
struct FeatureRequest {
  std::string name;                         ///< name of the feature
  FeatureKind kind = FeatureKind::missing;  ///< bytes, floats or int64s
  /// Number of values that each record must have; nullopt: any number.
  std::optional<std::size_t> length = 1;
  Feature missing = {};  ///< the values for a record without the feature; monostate: a missing
                         ///< feature is an error
};

/// The values of one record's features, indexed by request. Valid until the next record is read
/// into it; byte values also require the record to stay valid. Use one per thread: it reuses its
/// memory.
class ExampleValues {
 public:
  /// Bytes of request `request` in the last record read; empty if its feature has another kind.
  std::span<const std::string_view> bytes(std::size_t request) const {
    return values_.at(request).bytes;
  }
  /// Floats of a request; empty if its feature has another kind.
  std::span<const float> floats(std::size_t request) const { return values_.at(request).floats; }
  /// Integers of a request; empty if its feature has another kind.
  std::span<const std::int64_t> int64s(std::size_t request) const {
    return values_.at(request).int64s;
  }
  /// Whether the record lacks the feature, so that the values are the request's `missing`.
  bool is_missing(std::size_t request) const {
    return views_.at(request).kind() == FeatureKind::missing;
  }

 private:
  friend class ExampleReader;
  std::vector<FeatureView> views_;
  std::vector<FeatureValues> values_;
};

/// Reads a record in one pass, with features in any order; features that were not requested are
/// skipped. Thread-safe.
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
  /// Throws Error (input) for two requests with the same name, a request without a kind, and
  /// `missing` values that do not match their request.
  explicit ExampleReader(std::vector<FeatureRequest> requests);

  /// The requests of the constructor.
  const std::vector<FeatureRequest>& requests() const { return requests_; }

  /// `where` returns the location of the record for messages, and is called only on errors. Throws
  /// Error (data) for a record that is not a tf.train.Example, and for a feature that is missing or
  /// has another kind or length.
  void read(std::string_view record, ExampleValues& values,
            const std::function<std::string()>& where) const;

 private:
  std::vector<FeatureRequest> requests_;
  std::vector<std::string> names_;
};

}  // namespace lockstep::inline v0::data
