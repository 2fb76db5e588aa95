// A feature of a serialized tf.train.Example, read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {

/// A record that is not a tf.train.Example.
class MalformedExample : public Error {
 public:
  /// `reason` describes the problem.
  explicit MalformedExample(std::string_view reason)
      : Error(ErrorCategory::data, "tf.train.Example",
              "expected a message in the protobuf wire format", reason) {}
};

/// The kind of a feature; missing: none of the three.
enum class FeatureKind { missing, bytes, floats, int64s };

/// "missing", "bytes", "float", "int64".
std::string_view feature_kind_name(FeatureKind kind);

/// The values of a feature, in the list of its kind. Byte values point into the record.
struct FeatureValues {
  std::vector<std::string_view> bytes;  ///< if the feature holds bytes; they point into the record
  std::vector<float> floats;            ///< if it holds floats
  std::vector<std::int64_t> int64s;     ///< if it holds integers

  /// Number of values of any kind.
  std::size_t size() const { return bytes.size() + floats.size() + int64s.size(); }
  /// Removes the values, keeps the memory.
  void clear();
};

/// A feature of a record, without a copy; valid as long as the record's bytes. Its functions throw
/// MalformedExample.
class FeatureView {
 public:
  FeatureView() = default;
  /// `entry` is the map entry of the feature, its name and value; `value` is the last of its
  /// `values` values.
  FeatureView(std::string_view entry, std::string_view value, int values);

  FeatureKind kind() const { return kind_; }  ///< the kind of its values
  /// Number of values; 0 if it is missing.
  std::size_t size() const;
  /// Value `index` of a bytes feature, which must exist.
  std::string_view bytes(std::size_t index = 0) const;
  /// The only value of a bytes feature; nullopt if it has none or several, or another kind.
  std::optional<std::string_view> single_bytes() const;
  /// All values of a bytes feature.
  std::vector<std::string_view> bytes_list() const;
  /// Copies the values of a float feature; `size()` must be `out.size()`.
  void copy_floats(std::span<float> out) const;
  /// Sets `values` to the values of this feature.
  void copy_to(FeatureValues& values) const;
  /// The only value of an integer feature; nullopt if it has none or several, or another kind.
  std::optional<std::int64_t> single_int64() const;
  /// All values of an integer feature.
  std::vector<std::int64_t> int64s() const;

 private:
  template <typename Visitor>
  void for_each_list(Visitor visit) const;

  std::string_view entry_;
  FeatureKind kind_ = FeatureKind::missing;
  std::size_t first_list_ = 0;  // earlier lists were replaced by one of another kind
  std::string_view last_list_;
  bool has_one_list_ = false;  // exactly one list counts: the last
};

/// Finds the features `names[i]` in one pass over the record and stores them in `features[i]`; kind
/// `missing` for a name that is absent. Values are not parsed until they are read. Throws
/// MalformedExample.
void find_features(std::string_view record, std::span<const std::string> names,
                   std::span<FeatureView> features);

/// The feature called `name`. Throws MalformedExample.
FeatureView find_feature(std::string_view record, const std::string& name);

/// Calls visit(name, feature) for every feature of the record, in its order. If several have the
/// same name, the last one counts. Throws MalformedExample.
void for_each_feature(
    std::string_view record,
    const std::function<void(std::string_view name, const FeatureView& feature)>& visit);

}  // namespace lockstep::inline v0::data
