#include "lockstep/base/fields/bound_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0 {
namespace {

/// "--lr-final" for the key "lr_final".
std::string option_of(std::string_view key) {
  std::string name = "--" + std::string(key);
  std::ranges::replace(name, '_', '-');
  return name;
}

}  // namespace

void refuse_value(std::string_view name, std::string_view expected, std::string_view text) {
  throw Error(ErrorCategory::input, "command line", fmt::format("expected {} {}", name, expected),
              fmt::format("got \"{}\"", text));
}

namespace fields_detail {

template <typename T>
T parse_within(std::string_view name, std::string_view text, T min, T max) {
  constexpr T kLargest = std::numeric_limits<T>::max();
  const std::optional<T> value = parse_number<T>(text);
  const char* const expected = std::floating_point<T> ? "to be a number"
                               : std::unsigned_integral<T>
                                   ? "to be a whole number from 0 to 2^64 - 1"
                                   : "to be a whole number, written in digits";
  if (!value || (std::floating_point<T> && !std::isfinite(static_cast<double>(*value))))
    refuse_value(name, expected, text);
  // The largest value of a type is no bound that a field has chosen.
  const bool is_bounded =
      max != kLargest && max != static_cast<T>(std::numeric_limits<std::int32_t>::max());
  if (*value < min || *value > max)
    throw Error(ErrorCategory::input, "command line",
                *value < min && !is_bounded
                    ? fmt::format("expected {} to be at least {}", name, min)
                    : fmt::format("expected {} to be from {} to {}", name, min, max),
                fmt::format("got {}", *value));
  return *value;
}
template std::int64_t parse_within(std::string_view, std::string_view, std::int64_t, std::int64_t);
template std::uint64_t parse_within(std::string_view, std::string_view, std::uint64_t,
                                    std::uint64_t);
template float parse_within(std::string_view, std::string_view, float, float);
template double parse_within(std::string_view, std::string_view, double, double);

bool parse_flag(std::string_view name, std::string_view text) {
  if (text != "true" && text != "false") refuse_value(name, "to be true or false", text);
  return text == "true";
}

template struct ValueCodec<bool>;
template struct ValueCodec<int>;
template struct ValueCodec<std::int64_t>;
template struct ValueCodec<std::uint64_t>;
template struct ValueCodec<float>;
template struct ValueCodec<double>;
template struct ValueCodec<std::string>;
template struct ValueCodec<std::filesystem::path>;
template struct ValueCodec<std::optional<int>>;
template struct ValueCodec<std::optional<std::int64_t>>;
template struct ValueCodec<std::optional<double>>;
template struct ValueCodec<std::vector<std::string>>;

void add(std::vector<BoundField>& all, const FieldText& text, const FieldMore& more,
         const Codec& codec, const void* description, void* value, const void* standard) {
  BoundField& field = all.emplace_back(BoundField{.text = &text,
                                                  .more = &more,
                                                  .standard = codec.print(description, standard),
                                                  .codec = &codec,
                                                  .description = description,
                                                  .stored = value,
                                                  .target = value});
  codec.describe(description, field);
}

}  // namespace fields_detail

void BoundField::parse(std::string_view name, std::span<const std::string> texts) const {
  LOCKSTEP_CHECK(target != nullptr);
  codec->parse(description, target, name, texts);
}

std::string BoundField::option() const { return option_of(text->key); }

std::string BoundField::print() const { return fmt::format("{}", fmt::join(values(), ",")); }

bool BoundField::is_standard() const { return values() == standard; }

std::variant<bool, double, std::string> BoundField::value() const {
  std::string printed = print();
  if (kind == FieldKind::flag) return printed == "true";
  if (kind == FieldKind::integer || kind == FieldKind::number)
    if (const auto number = parse_number<double>(printed)) return *number;
  return printed;
}

namespace {

std::vector<std::string_view> words_of(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  for (;; text.remove_prefix(words.back().size() + 1)) {
    words.push_back(text.substr(0, text.find(separator)));
    if (words.back().size() == text.size()) return words;
  }
}

/// The field of a key; an option counts before a field that is only printed. Null: none.
const BoundField* find_field(std::span<const BoundField> fields, std::string_view key) {
  const BoundField* found = nullptr;
  for (const BoundField& one : fields)
    if (one.text->key == key && (found == nullptr || found->text->help.empty())) found = &one;
  return found;
}

/// Throws Error (input) as check_needs(), with names of fields that `name_of` makes of their keys.
void require_needs(std::string_view where, std::span<const BoundField> fields,
                   std::string (*name_of)(std::string_view key)) {
  for (const BoundField& field : fields) {
    const std::string_view needs = field.more->needs;
    if (needs.empty() || field.is_standard()) continue;
    const std::string_view keys = needs.substr(0, needs.find('='));
    std::vector<std::string_view> accepted;
    if (keys.size() < needs.size()) accepted = words_of(needs.substr(keys.size() + 1), ',');
    std::vector<std::string> names;
    std::string value;
    bool is_met = false;
    for (const std::string_view key : words_of(keys, '|')) {
      const BoundField* const other = find_field(fields, key);
      if (other == nullptr) continue;
      names.push_back(name_of(key));
      value = other->print();
      is_met = is_met || (accepted.empty() ? !other->is_standard()
                                           : std::ranges::find(accepted, value) != accepted.end());
    }
    if (!names.empty() && !is_met)
      throw Error(ErrorCategory::input, std::string(where),
                  fmt::format("expected {}{} with {}", fmt::join(names, " or "),
                              accepted.empty() ? "" : " " + list_names(accepted, " or "),
                              name_of(field.text->key)),
                  accepted.empty() || value.empty() ? "it was not given" : "got " + value);
  }
}

/// Throws Error (input) if `value`, a number as text, is outside the bounds of `field`.
void require_in_range(std::string_view where, const BoundField& field, const std::string& value) {
  const auto bound = [](const std::string& text, double none) {
    return parse_number<double>(text).value_or(none);
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::optional<double> number = parse_number<double>(value);
  if (number && *number >= bound(field.min, -kInfinity) && *number <= bound(field.max, kInfinity))
    return;
  throw Error(ErrorCategory::input, std::string(where),
              fmt::format("expected {} to be {}", field.text->key,
                          field.max.empty()   ? "at least " + field.min
                          : field.min.empty() ? "at most " + field.max
                                              : "from " + field.min + " to " + field.max),
              "got " + value);
}

}  // namespace

void check_needs(std::span<const BoundField> fields) {
  require_needs("command line", fields, option_of);
}

void check_fields(std::string_view where, std::span<const BoundField> fields) {
  for (const BoundField& field : fields) {
    if (field.min.empty() && field.max.empty()) continue;
    for (const std::string& value : field.values()) require_in_range(where, field, value);
  }
  require_needs(where, fields, [](std::string_view key) { return std::string(key); });
}

std::string lines_of(std::span<const BoundField> fields, Role role) {
  std::string lines;
  for (const BoundField& field : fields) {
    if (field.text->role < role) continue;
    const std::string value = field.print();
    lines += fmt::format("{}: {}\n", field.label(), value.empty() ? "none" : value);
  }
  return lines;
}

}  // namespace lockstep::inline v0
