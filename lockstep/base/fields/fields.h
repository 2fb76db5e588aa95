// The fields of an options struct, described once. Derived from this list (bound_fields.h): command
// line options with their checks and help, the schema of `--help --json`, configuration files, what
// ranks agree on, what a checkpoint stores and compares on resume, and the hyperparameters of
// TensorBoard. The list depends on none of these.
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

namespace lockstep::inline v0 {

/// Where the value of a field must be the same. Each role includes the previous ones.
enum class Role : std::uint8_t {
  free,          ///< nowhere
  agree,         ///< on all ranks
  resume_warn,   ///< as in the checkpoint; otherwise a resumed run logs a warning
  resume_exact,  ///< as in the checkpoint; otherwise a resumed run fails
};

/// The first section of the help.
inline constexpr const char* kCommonOptions = "Common options";

/// Names and meaning of a field.
struct FieldText {
  std::string_view key;  ///< in files and as a hyperparameter: "clip_norm"; as option --clip-norm
  std::string_view group = {};  ///< section of the help that lists the option
  /// What the option does, with its unit; empty: not an option of the command line.
  std::string_view help = {};
  Role role = Role::free;       ///< where the value must be the same
  std::string_view label = {};  ///< in errors and warnings: "maximum gradient norm"; empty: the key
};

/// Rarely used properties of a field.
struct FieldMore {
  std::string_view value = {};  ///< placeholder of the value in the help; empty: by type
  std::string_view alias = {};  ///< another name of the option, without "--"
  /// Another option, and its values for which this one has an effect:
  /// "lr_schedule=cosine,linear". Without values: any but its default; then also one of several,
  /// "validation_data|validation_split".
  std::string_view needs = {};
  bool repeats = false;  ///< whether a repeated option adds values instead of replacing them
  /// Returns the text that replaces "{}" in the help, such as a list of names.
  std::string (*names)() = nullptr;
};

/// Valid values of a number; other types have no range.
template <typename T>
struct Range {};
/// A closed interval.
template <typename T>
requires(std::is_arithmetic_v<T>) struct Range<T> {
  T min = std::numeric_limits<T>::lowest();  ///< the smallest value
  T max = std::numeric_limits<T>::max();     ///< the largest value
};
/// Range of an optional number.
template <typename T>
struct Range<std::optional<T>> : Range<T> {};

/// A member of `S` with its description.
template <typename S, typename T>
struct Field {
  using Member = T S::*;  ///< a pointer to a member
  /// Describes the member at `pointer`, whose numbers are within `valid`.
  constexpr Field(T S::*pointer, FieldText description, std::type_identity_t<Range<T>> valid = {},
                  FieldMore details = {})
      : member(pointer), text(description), range(valid), more(details) {}
  Member member;   ///< the member that holds the value
  FieldText text;  ///< description
  Range<T> range;  ///< valid values
  FieldMore more;  ///< rarely used part of the description
};

/// A member whose own fields are fields of `S`.
template <typename S, typename T>
struct Part {
  using Member = T S::*;  ///< a pointer to a member
  /// The member at `pointer`.
  constexpr explicit Part(T S::*pointer) : member(pointer) {}
  Member member;  ///< the nested options
};

/// A field whose command line form differs from its form in the struct.
template <typename S>
struct TextField {
  FieldText text;  ///< description
  /// Sets the value; `name` is what the user calls the field, `values` are those of all
  /// occurrences. Throws Error (input). Null: the field is only printed.
  void (*parse)(S& options, std::string_view name, std::span<const std::string> values);
  /// Returns the value; one text per occurrence if the option may be repeated.
  std::vector<std::string> (*print)(const S& options);
  FieldMore more = {};  ///< rarely used part of the description
};

/// The list of a struct: `static constexpr std::tuple list{…}` of Field, Part and TextField.
template <typename S>
struct Fields;

}  // namespace lockstep::inline v0
