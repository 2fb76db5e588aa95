// One feature inside a serialized tf.train.Example, read in place.
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

namespace lockstep::data {

/// A record that is not a tf.train.Example.
class MalformedExample : public Error {
 public:
  /// With what is wrong, for the message.
  explicit MalformedExample(std::string_view reason)
      : Error(ErrorCategory::data, "tf.train.Example", "needed a message in protobuf's wire format", reason) {}
};

/// What a feature holds; missing: neither of the three.
enum class FeatureKind { missing, bytes, floats, int64s };

/// "missing", "bytes", "float", "int64".
std::string_view feature_kind_name(FeatureKind kind);

/// The values of a feature, in the list of its kind; bytes lie in the record.
struct FeatureValues {
  std::vector<std::string_view> bytes;  ///< where the feature holds bytes; they lie in the record
  std::vector<float> floats;            ///< where it holds floats
  std::vector<std::int64_t> int64s;     ///< where it holds integers

  std::size_t size() const { return bytes.size() + floats.size() + int64s.size(); }  ///< values of any kind
  /// Keeps the memory.
  void clear();
};

/// One feature inside a record, without a copy; valid as long as the record's bytes. Its functions throw
/// MalformedExample.
class FeatureView {
 public:
  FeatureView() = default;
  /// `entry` is the map entry of the feature, its name and value; `value` the last of its `values` values.
  FeatureView(std::string_view entry, std::string_view value, int values);

  FeatureKind kind() const { return kind_; }  ///< what the feature holds
  /// Number of values; 0 where it is missing.
  std::size_t size() const;
  /// Value `index` of a bytes feature; it must have so many.
  std::string_view bytes(std::size_t index = 0) const;
  /// The only value of a bytes feature; nullopt where there is none or several, or another kind.
  std::optional<std::string_view> single_bytes() const;
  /// All values of a bytes feature.
  std::vector<std::string_view> bytes_list() const;
  /// The values of a float feature, as many as `out` holds; `size()` must be `out.size()`.
  void copy_floats(std::span<float> out) const;
  /// Makes `values` those of this feature.
  void copy_to(FeatureValues& values) const;
  /// The only value of an integer feature; nullopt where there is none or several, or another kind.
  std::optional<std::int64_t> single_int64() const;
  /// All values of an integer feature.
  std::vector<std::int64_t> int64s() const;

 private:
  template <typename Visitor>
  void for_each_list(Visitor visit) const;

  std::string_view entry_;
  FeatureKind kind_ = FeatureKind::missing;
  std::size_t first_list_ = 0;  // lists before it were replaced by one of another kind
  std::string_view last_list_;
  bool has_one_list_ = false;  // that counts: the last
};

/// Finds the features called `names[i]` in one pass over the record and puts them into `features[i]`; kind missing
/// where there is none. Values are not looked at before they are asked for. Throws MalformedExample.
void find_features(std::string_view record, std::span<const std::string> names, std::span<FeatureView> features);

/// visit(name, feature) for every feature of the record, in its order; of several of one name the last is the one that
/// counts. Throws MalformedExample.
void for_each_feature(std::string_view record,
                      const std::function<void(std::string_view name, const FeatureView& feature)>& visit);

}  // namespace lockstep::data
