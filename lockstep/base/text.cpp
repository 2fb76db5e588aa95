#include "lockstep/base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/other_names.h"

namespace lockstep::inline v0 {
namespace {

bool same_letter(char a, char b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
  return lower(a) == lower(b);
}

// Optimal string alignment distance: letters inserted, removed, replaced, or swapped with the next
// one.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  std::vector<std::size_t> previous;  // row i - 2
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::vector<std::size_t> next(to.size() + 1, i);
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = row[j - 1] + (same_letter(from[i - 1], to[j - 1]) ? 0 : 1);
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && same_letter(from[i - 1], to[j - 2]) &&
          same_letter(from[i - 2], to[j - 1]))
        next[j] = std::min(next[j], previous[j - 2] + 1);
    }
    previous = std::exchange(row, std::move(next));
  }
  return row.back();
}

}  // namespace

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string list_names(std::span<const std::string_view> names, std::string_view last) {
  constexpr std::size_t kMaxNames = 60;  // the columns of a table may be thousands
  if (names.size() > kMaxNames)
    return fmt::format("{}, … ({} in all)", fmt::join(names.first(kMaxNames), ", "), names.size());
  if (names.size() < 2) return fmt::format("{}", fmt::join(names, ""));
  return fmt::format("{}{}{}", fmt::join(names.first(names.size() - 1), ", "), last, names.back());
}

std::string got_name(std::string_view name, std::span<const std::string_view> known) {
  constexpr std::size_t kMaxComparedBytes =
      64;  // longer names are not typing errors, and the distance takes quadratic time
  constexpr std::size_t kMinPrefixBytes = 3;  // shorter names abbreviate anything
  constexpr std::size_t kLettersPerError = 3;
  constexpr std::size_t kMaxSuggested = 2;
  std::string text = fmt::format("got \"{}\"", name);
  for (const OtherName& other : names_here(name))
    if (std::ranges::find(known, other.first_word()) != known.end())
      return text + other.suggestion();
  if (known.empty() || name.size() > kMaxComparedBytes) return text;
  std::vector<std::string_view> longer;
  std::ranges::copy_if(known, std::back_inserter(longer),
                       [name](std::string_view candidate) { return candidate.starts_with(name); });
  if (name.size() >= kMinPrefixBytes && !longer.empty() && longer.size() <= kMaxSuggested)
    return fmt::format("{} (did you mean {}?)", text, list_names(longer, " or "));
  const auto closest = std::ranges::min_element(
      known, {}, [name](std::string_view candidate) { return edit_distance(name, candidate); });
  // Leading dashes do not count as matching letters.
  const std::size_t letters =
      closest->size() - std::min(closest->find_first_not_of('-'), closest->size());
  const bool is_near = edit_distance(name, *closest) <= letters / kLettersPerError;
  return is_near ? fmt::format("{} (did you mean {}?)", text, *closest) : text;
}

void refuse_name(std::string_view where, std::string_view name,
                 std::span<const std::string_view> listed,
                 std::span<const std::string_view> accepted) {
  throw Error(ErrorCategory::input, where, "expected " + list_names(listed, " or "),
              got_name(name, accepted.empty() ? listed : accepted));
}

namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "percent-encoded:";

bool is_utf8(std::string_view bytes) {
  try {
    (void)json(bytes).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

template <typename Change>
json change_strings(const json& value, Change change) {
  if (value.is_string()) return change(value.get_ref<const std::string&>());
  json changed = value;
  if (value.is_structured())
    for (json& element : changed) element = change_strings(std::as_const(element), change);
  return changed;
}

}  // namespace

std::string encode_bytes(std::string_view bytes) {
  if (!bytes.starts_with(kPrefix) && is_utf8(bytes)) return std::string(bytes);
  std::string text(kPrefix);
  for (const char byte : bytes) {
    if (byte >= ' ' && byte <= '~' && byte != '%')
      text += byte;
    else
      text += fmt::format("%{:02X}", static_cast<unsigned char>(byte));
  }
  return text;
}

std::string decode_bytes(std::string_view text) {
  if (!text.starts_with(kPrefix)) return std::string(text);
  std::string bytes;
  for (std::size_t i = kPrefix.size(); i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      bytes += static_cast<char>(byte);
      i += 2;
    } else {
      bytes += text[i];
    }
  }
  return bytes;
}

json encode_strings(const json& value) {
  return change_strings(value, [](const std::string& s) { return encode_bytes(s); });
}
json decode_strings(const json& value) {
  return change_strings(value, [](const std::string& s) { return decode_bytes(s); });
}

}  // namespace lockstep::inline v0
