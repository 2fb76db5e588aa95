// Type-erased fields of one object: code that works on a list of fields (fields.h) reads and sets
// them as text.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/fields/fields.h"

namespace lockstep::inline v0 {

/// Kind of value that a field holds.
enum class FieldKind : std::uint8_t { flag, integer, number, name, text, list };
/// Names in the schema of `--help --json`.
template <>
inline constexpr auto kNamesOf<FieldKind> = enum_names<FieldKind>({{FieldKind::flag, "flag"},
                                                                   {FieldKind::integer, "integer"},
                                                                   {FieldKind::number, "number"},
                                                                   {FieldKind::name, "name"},
                                                                   {FieldKind::text, "text"},
                                                                   {FieldKind::list, "list"}});

struct BoundField;
namespace fields_detail {
/// How the values of one type are read and printed. `description` is the Range of a Field, or a
/// TextField.
struct Codec {
  /// Returns the texts of a value.
  std::vector<std::string> (*print)(const void* description, const void* value);
  /// Sets a value; throws Error (input).
  void (*parse)(const void* description, void* value, std::string_view name,
                std::span<const std::string> texts);
  /// Sets kind, choices and bounds.
  void (*describe)(const void* description, BoundField& field);
};
}  // namespace fields_detail

/// A field of one object, whose types the code that uses it does not know.
struct BoundField {
  const FieldText* text = nullptr;             ///< description
  const FieldMore* more = nullptr;             ///< rarely used part of the description
  FieldKind kind = FieldKind::text;            ///< kind of value
  std::vector<std::string_view> choices = {};  ///< valid values of a name
  std::string min = {};                        ///< lower bound of a number; empty: none
  std::string max = {};                        ///< upper bound of a number; empty: none
  std::vector<std::string> standard = {};      ///< the values of a default-constructed object

  const fields_detail::Codec* codec = nullptr;  ///< how the value is read and printed
  const void* description = nullptr;            ///< what `codec` knows of the field
  const void* stored = nullptr;                 ///< the value
  void* target = nullptr;                       ///< the value, unless the object is constant

  /// The value, or all values of a list. Empty: not set.
  std::vector<std::string> values() const { return codec->print(description, stored); }
  /// Sets the value to the last of `texts`, or a list to all of them. `name` is what the user calls
  /// the field, such as "--clip-norm". Throws Error (input) for an invalid value. The object must
  /// not be constant.
  void parse(std::string_view name, std::span<const std::string> texts) const;

  std::string option() const;  ///< "--clip-norm"
  /// Name in errors and warnings.
  std::string_view label() const { return text->label.empty() ? text->key : text->label; }
  std::string print() const;                              ///< all values, separated by commas
  bool is_standard() const;                               ///< whether the value is the default
  std::variant<bool, double, std::string> value() const;  ///< typed according to `kind`
};

/// Throws Error (input): `[command line] expected NAME EXPECTED, got "text"`.
[[noreturn]] void refuse_value(std::string_view name, std::string_view expected,
                               std::string_view text);

/// Throws Error (input) if a field has a non-default value and the option in its `needs` is not set
/// accordingly.
void check_needs(std::span<const BoundField> fields);

/// Throws Error (input) for a number outside its range, or as check_needs(): what a module requires
/// of options that no command line has checked. `where` is the module.
void check_fields(std::string_view where, std::span<const BoundField> fields);

/// Lines "LABEL: VALUE" of the fields whose role is `role` or stronger, for
/// job::Agreement::require_same_lines().
std::string lines_of(std::span<const BoundField> fields, Role role = Role::agree);

namespace fields_detail {

/// Parses a number from `min` to `max`. Throws Error (input). T: std::int64_t, std::uint64_t,
/// float or double.
template <typename T>
T parse_within(std::string_view name, std::string_view text, T min, T max);
bool parse_flag(std::string_view name, std::string_view text);

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;

/// T without std::optional.
template <typename T>
struct Bare {
  using Type = T;  ///< the type of the value
};
/// The type of a value that may be absent.
template <typename T>
struct Bare<std::optional<T>> {
  using Type = T;  ///< the type of the value
};

template <typename T>
constexpr FieldKind kind_of() {
  using Value = typename Bare<T>::Type;
  if constexpr (kIsVector<Value>) return FieldKind::list;
  if constexpr (std::same_as<Value, bool>) return FieldKind::flag;
  if constexpr (std::is_enum_v<Value>) return FieldKind::name;
  if constexpr (std::integral<Value>) return FieldKind::integer;
  return std::floating_point<Value> ? FieldKind::number : FieldKind::text;
}

// Other types define `void parse_field(T&, name, text)`, which throws Error (input), and
// `std::string to_string(const T&)` in their namespace.

template <typename T>
std::string print_one(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return std::string(kNamesOf<T>.name(value));
  else if constexpr (std::same_as<T, std::filesystem::path>)
    return value.string();
  else if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string>)
    return fmt::format("{}", value);
  else
    return to_string(value);
}

template <typename T>
std::vector<std::string> print(const T& value) {
  std::vector<std::string> all;
  if constexpr (kIsOptional<T>) {
    if (value) all.push_back(print_one(*value));
  } else if constexpr (kIsVector<T>) {
    for (const auto& one : value) all.push_back(print_one(one));
  } else if (std::string text = print_one(value); !text.empty()) {
    all.push_back(std::move(text));
  }
  return all;
}

template <typename T>
void parse_one(T& value, const Range<T>& range, std::string_view name, std::string_view text) {
  if constexpr (std::same_as<T, bool>)
    value = parse_flag(name, text);
  else if constexpr (std::is_enum_v<T>)
    value =
        kNamesOf<T>.parse(name.substr(std::min(name.find_first_not_of('-'), name.size())), text);
  else if constexpr (std::floating_point<T>)
    value = parse_within<T>(name, text, range.min, range.max);
  else if constexpr (std::unsigned_integral<T>)
    value = static_cast<T>(parse_within<std::uint64_t>(name, text, range.min, range.max));
  else if constexpr (std::integral<T>)
    value = static_cast<T>(parse_within<std::int64_t>(name, text, range.min, range.max));
  else if constexpr (std::constructible_from<T, std::string_view>)
    value = T(text);
  else
    parse_field(value, name, text);
}

template <typename T>
void parse(T& value, const Range<T>& range, std::string_view name,
           std::span<const std::string> texts) {
  if constexpr (kIsVector<T>) {
    value.clear();
    for (std::string_view text : texts)
      for (bool is_last = text.empty(); !is_last;) {
        const std::size_t comma = text.find(',');
        parse_one(value.emplace_back(), {}, name, text.substr(0, comma));
        is_last = comma == std::string_view::npos;
        if (!is_last) text.remove_prefix(comma + 1);
      }
  } else if constexpr (kIsOptional<T>) {
    value.reset();
    if (!texts.empty() && !texts.back().empty())
      parse_one(value.emplace(), Range<typename T::value_type>{range}, name, texts.back());
  } else if (!texts.empty()) {
    parse_one(value, range, name, texts.back());
  }
}

/// Functions of a Codec for the members of type T.
template <typename T>
struct ValueCodec {
  /// As Codec::print.
  static std::vector<std::string> print(const void* /*range*/, const void* value) {
    return fields_detail::print(*static_cast<const T*>(value));
  }
  /// As Codec::parse.
  static void parse(const void* range, void* value, std::string_view name,
                    std::span<const std::string> texts) {
    fields_detail::parse(*static_cast<T*>(value), *static_cast<const Range<T>*>(range), name,
                         texts);
  }
  /// As Codec::describe.
  static void describe(const void* range, BoundField& field) {
    using Value = typename Bare<T>::Type;
    field.kind = kind_of<T>();
    if constexpr (std::is_enum_v<Value>) {
      for (const auto& entry : kNamesOf<Value>.entries)
        if (kNamesOf<Value>.name(entry.value) == entry.name) field.choices.push_back(entry.name);
    } else if constexpr (std::is_arithmetic_v<Value> && !std::same_as<Value, bool>) {
      const Range<Value>& valid = *static_cast<const Range<T>*>(range);
      if (valid.min != Range<Value>{}.min) field.min = print_one(valid.min);
      if (valid.max != Range<Value>{}.max) field.max = print_one(valid.max);
    }
  }
};
// Compiled once, in bound_fields.cpp.
extern template struct ValueCodec<bool>;
extern template struct ValueCodec<int>;
extern template struct ValueCodec<std::int64_t>;
extern template struct ValueCodec<std::uint64_t>;
extern template struct ValueCodec<float>;
extern template struct ValueCodec<double>;
extern template struct ValueCodec<std::string>;
extern template struct ValueCodec<std::filesystem::path>;
extern template struct ValueCodec<std::optional<int>>;
extern template struct ValueCodec<std::optional<std::int64_t>>;
extern template struct ValueCodec<std::optional<double>>;
extern template struct ValueCodec<std::vector<std::string>>;

/// Functions of a Codec for the TextFields of S.
template <typename S>
struct TextCodec {
  /// As Codec::print.
  static std::vector<std::string> print(const void* field, const void* options) {
    return static_cast<const TextField<S>*>(field)->print(*static_cast<const S*>(options));
  }
  /// As Codec::parse.
  static void parse(const void* field, void* options, std::string_view name,
                    std::span<const std::string> texts) {
    static_cast<const TextField<S>*>(field)->parse(*static_cast<S*>(options), name, texts);
  }
  /// As Codec::describe.
  static void describe(const void* field, BoundField& bound) {
    if (static_cast<const TextField<S>*>(field)->more.repeats) bound.kind = FieldKind::list;
  }
};

template <typename C>
inline constexpr Codec kCodec{C::print, C::parse, C::describe};

void add(std::vector<BoundField>& all, const FieldText& text, const FieldMore& more,
         const Codec& codec, const void* description, void* value, const void* standard);

template <typename S, typename T>
void bind(S& object, const S& standard, const Field<S, T>& field, std::vector<BoundField>& all) {
  add(all, field.text, field.more, kCodec<ValueCodec<T>>, &field.range, &(object.*field.member),
      &(standard.*field.member));
}
template <typename S>
void bind(S& object, const S& standard, const TextField<S>& field, std::vector<BoundField>& all) {
  add(all, field.text, field.more, kCodec<TextCodec<S>>, &field, &object, &standard);
}
template <typename S>
void bind_all(S& object, const S& standard, std::vector<BoundField>& all);
template <typename S, typename T>
void bind(S& object, const S& standard, const Part<S, T>& part, std::vector<BoundField>& all) {
  bind_all(object.*part.member, standard.*part.member, all);
}
template <typename S>
void bind_all(S& object, const S& standard, std::vector<BoundField>& all) {
  std::apply([&](const auto&... field) { (bind(object, standard, field, all), ...); },
             Fields<S>::list);
}

}  // namespace fields_detail

/// The fields of `options`, which must outlive the result, in the order of their list.
template <typename S>
std::vector<BoundField> fields_of(S& options) {
  std::vector<BoundField> all;
  fields_detail::bind_all(options, S{}, all);
  return all;
}
/// The fields of a constant object.
template <typename S>
std::vector<BoundField> fields_of(const S& options) {
  std::vector<BoundField> all = fields_of(const_cast<S&>(options));
  for (BoundField& field : all) field.target = nullptr;
  return all;
}

}  // namespace lockstep::inline v0
