#include "lockstep/base/bound_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
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
T parse_within(std::string_view name, std::string_view text, T least, T most) {
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
      most != kLargest && most != static_cast<T>(std::numeric_limits<std::int32_t>::max());
  if (*value < least || *value > most)
    throw Error(ErrorCategory::input, "command line",
                *value < least && !is_bounded
                    ? fmt::format("expected {} to be at least {}", name, least)
                    : fmt::format("expected {} to be from {} to {}", name, least, most),
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

}  // namespace fields_detail

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

void check_needs(std::span<const BoundField> fields) {
  for (const BoundField& field : fields) {
    const std::string_view needs = field.more->needs;
    if (needs.empty() || field.is_standard()) continue;
    const std::string_view key = needs.substr(0, needs.find('='));
    const auto other = std::ranges::find_if(fields, [key](const BoundField& one) {
      return one.text->key == key && !one.text->help.empty();
    });
    if (other == fields.end()) continue;
    std::vector<std::string_view> accepted;
    for (std::string_view rest = needs.substr(key.size()); !rest.empty();) {
      rest.remove_prefix(1);  // '=' or ','
      accepted.push_back(rest.substr(0, rest.find(',')));
      rest.remove_prefix(accepted.back().size());
    }
    const std::string value = other->print();
    const bool is_met = accepted.empty() ? !other->is_standard()
                                         : std::ranges::find(accepted, value) != accepted.end();
    if (!is_met)
      throw Error(
          ErrorCategory::input, "command line",
          fmt::format("expected {}{} with {}", option_of(key),
                      accepted.empty() ? "" : " " + list_names(accepted, " or "), field.option()),
          accepted.empty() || value.empty() ? "it was not given" : "got " + value);
  }
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

}  // namespace lockstep
