// The names of an enumeration's values: one table to parse, to print, and to list in an error.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep::inline v0 {

/// Throws Error (input): `[where] expected a, b or c, got "aa" (did you mean a?)`. The suggestion
/// is one of the `accepted` names; by default, one of the `listed` names.
[[noreturn]] void refuse_name(std::string_view where, std::string_view name,
                              std::span<const std::string_view> listed,
                              std::span<const std::string_view> accepted = {});

/// A value and its name.
template <typename Enum>
struct EnumName {
  Enum value;             ///< the value
  std::string_view name;  ///< its name
};

/// A table made by enum_names(). A value's first name is printed and listed; its other names are
/// only accepted.
template <typename Enum, std::size_t N>
struct EnumNames {
  std::array<EnumName<Enum>, N> entries;  ///< in the order in which they are listed

  /// The first name of `value`; "unknown" if it has none.
  constexpr std::string_view name(Enum value) const {
    for (const EnumName<Enum>& entry : entries)
      if (entry.value == value) return entry.name;
    return "unknown";
  }

  /// The value called `name`; nullopt if there is none.
  constexpr std::optional<Enum> find(std::string_view name) const {
    for (const EnumName<Enum>& entry : entries)
      if (entry.name == name) return entry.value;
    return std::nullopt;
  }

  /// The value called `text`. Throws the Error of refuse_name() if there is none; `where` is the
  /// option or key whose value is `text`.
  Enum parse(std::string_view where, std::string_view text) const {
    if (const std::optional<Enum> found = find(text)) return *found;
    std::array<std::string_view, N> names;
    std::size_t first = 0;      // first names, at the beginning
    std::size_t others_at = N;  // other names, at the end
    for (const EnumName<Enum>& entry : entries)
      names[name(entry.value) == entry.name ? first++ : --others_at] = entry.name;
    refuse_name(where, text, std::span(names).first(first), names);
  }
};

/// A table of `Enum`, such as enum_names<Color>({{Color::red, "red"}, {Color::blue, "blue"}}).
template <typename Enum, std::size_t N>
constexpr EnumNames<Enum, N> enum_names(const EnumName<Enum> (&entries)[N]) {
  return {std::to_array(entries)};
}

/// Name table of an enumeration that is a field of options (fields.h), specialized next to the
/// enumeration.
template <typename Enum>
inline constexpr std::nullptr_t kNamesOf = nullptr;

/// Parses a value of an enumeration with kNamesOf. Throws like EnumNames::parse().
template <typename Enum>
Enum parse_name(std::string_view where, std::string_view text) {
  return kNamesOf<Enum>.parse(where, text);
}

}  // namespace lockstep::inline v0
