// The fields of an options struct, described once. From the list of a struct follow its options of
// the command line with their checks and their help, the schema of `--help --json`, configuration
// files, what ranks agree on, what a checkpoint stores and compares on resume, and the
// hyperparameters of TensorBoard (bound_fields.h). The list knows none of these.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lockstep/base/enum_names.h"

namespace lockstep {

/// Where the value of a field must be the same. Each role includes those before it.
enum class Role : std::uint8_t {
  free,          ///< nowhere
  agree,         ///< on all ranks
  resume_warn,   ///< a run that resumes warns of another value than that of its checkpoint
  resume_exact,  ///< a run that resumes refuses another value
};

/// The part of the help that is listed first.
inline constexpr const char* kCommonOptions = "Common options";

/// What a field is called and means.
struct FieldText {
  std::string_view key;  ///< in files and as a hyperparameter: "clip_norm"; as option --clip-norm
  std::string_view group = {};  ///< the part of the help that lists the option
  /// What the option does, with its unit; empty: the command line does not have it.
  std::string_view help = {};
  Role role = Role::free;       ///< where it must be the same
  std::string_view label = {};  ///< in errors and warnings: "maximum gradient norm"; empty: the key
};

/// What few fields have.
struct FieldMore {
  std::string_view value = {};  ///< what the help shows as the value; empty: by the type
  std::string_view alias = {};  ///< another name of the option, without "--"
  /// Another option, and those of its values with which this one has an effect:
  /// "lr_schedule=cosine,linear". Without values: any but its default.
  std::string_view needs = {};
  bool repeats = false;  ///< whether all values count that are given, not only the last
  /// Replaces "{}" in the help: names that the library lists.
  std::string (*names)() = nullptr;
};

/// The values that a number may have; other types have no range.
template <typename T>
struct Range {};
/// Both bounds are included.
template <typename T>
requires(std::is_arithmetic_v<T>) struct Range<T> {
  T least = std::numeric_limits<T>::lowest();  ///< the smallest value
  T most = std::numeric_limits<T>::max();      ///< the largest value
};
/// The values if there is one.
template <typename T>
struct Range<std::optional<T>> : Range<T> {};

/// A member of `S` with its description.
template <typename S, typename T>
struct Field {
  using Member = T S::*;  ///< a pointer to a member
  /// `words` describe the member at `pointer`, whose numbers are within `values`.
  constexpr Field(T S::*pointer, FieldText words, std::type_identity_t<Range<T>> values = {},
                  FieldMore further = {})
      : member(pointer), text(words), range(values), more(further) {}
  Member member;   ///< where the value is
  FieldText text;  ///< what it means
  Range<T> range;  ///< which values are valid
  FieldMore more;  ///< the rest of the description
};

/// A member whose own fields are fields of `S`.
template <typename S, typename T>
struct Part {
  using Member = T S::*;  ///< a pointer to a member
  /// The member at `pointer`.
  constexpr explicit Part(T S::*pointer) : member(pointer) {}
  Member member;  ///< where the options are
};

/// A field that is another thing on the command line than in the struct.
template <typename S>
struct TextField {
  FieldText text;  ///< what it means
  /// Sets the value; `name` is what the user calls the field, `values` are all that were given.
  /// Throws Error (input). Null: the field is only printed.
  void (*parse)(S& options, std::string_view name, std::span<const std::string> values);
  /// The value; several texts of a field that may be given several times.
  std::vector<std::string> (*print)(const S& options);
  FieldMore more = {};  ///< the rest of the description
};

/// The list of a struct: `static constexpr std::tuple list{…}` of Field, Part and TextField.
template <typename S>
struct Fields;

}  // namespace lockstep
