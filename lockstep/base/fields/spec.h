// The grammar of options that have parts, `KIND:PATH:key=value,key=value`, such as
// "csv:shop.csv:label=bought,drop=id+date", "gpt:4x128,dropout=0.1" and "fc/*:lr=0.1".
// docs/program.md has its EBNF. All functions throw Error (input) that starts with `where`.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0 {

/// `value` as written in a spec: in quotes if it is empty or contains a character of the grammar.
std::string quote_spec(std::string_view value);
/// Quoted values, separated by plus signs.
std::string quote_spec(std::span<const std::string> values);

/// Splits "auc,f1:average=macro,beta=2": a "key=value" belongs to the part before it.
std::vector<std::string> split_specs(std::string_view where, std::string_view text);

/// Splits "price=mse:weight=2" at the separator '=' into "price" and "mse:weight=2"; nullopt if
/// another separator of the grammar, or none, follows the first word.
std::optional<std::pair<std::string, std::string_view>> cut_spec(std::string_view where,
                                                                 std::string_view text,
                                                                 char separator);

/// Parses "28x28x1"; nullopt unless all numbers are above 0.
std::optional<std::vector<std::int64_t>> parse_extents(std::string_view text);

/// The paths that match a pattern, which may have braces and a leading ~.
std::vector<std::string> glob_names(const std::string& pattern);

/// An item of a spec.
struct SpecItem {
  std::string text;                 ///< as written: "drop=id+date"
  std::string key;                  ///< "drop"; empty for a positional value
  std::vector<std::string> values;  ///< "id" and "date", without quotes
  bool is_read = false;             ///< whether a function of Spec returned it

  std::string value() const;  ///< the whole value, for keys without lists: "1e+5"
};

/// The parts of a text in this grammar. The caller reads the values that it knows; finish() rejects
/// the others:
///
///     Spec spec = Spec::parse("--early-stop", "loss:min,patience=5");
///     const bool is_minimized = spec.take("min");
///     spec.read("patience", options.patience, 1);
///     spec.finish();
class Spec {
 public:
  /// KIND[:ITEMS], where the kind ends at the first colon.
  static Spec parse(std::string_view where, std::string_view text);
  /// PATTERN[:ITEMS], where the pattern, or the name of a new file, ends at the first colon that a
  /// key follows.
  static Spec of_pattern(std::string_view where, std::string_view text);
  /// PATH[:ITEMS]: of the texts before a colon, or the whole, the path is the longest one that
  /// exists, or as a pattern matches a file. If there is none, it ends as in of_pattern(), or
  /// before one of `words`, which then is the only item.
  static Spec of_path(std::string_view where, std::string_view text,
                      std::initializer_list<std::string_view> words = {});
  /// ITEMS alone.
  static Spec of_items(std::string_view where, std::string_view text);

  const std::string& head() const { return head_; }              ///< the kind, pattern or path
  const std::vector<SpecItem>& items() const { return items_; }  ///< in the order given

  /// Whether the positional value `word` is present.
  bool take(std::string_view word);
  /// The next positional value, which messages call `name`; nullopt if there is none.
  std::optional<std::string> next(std::string_view name);
  /// The item with `key`; null if it is absent.
  const SpecItem* find(std::string_view key);

  // The functions below read the value of a key, and return whether the key is present.

  /// Reads a string, a path, or a list of strings.
  template <typename T>
  requires std::is_assignable_v<T&, std::string> || std::is_same_v<T, std::vector<std::string>>
  bool read(std::string_view key, T& value) {
    const SpecItem* const item = find(key);
    if (item == nullptr) return false;
    if constexpr (std::is_same_v<T, std::vector<std::string>>)
      value = item->values;
    else
      value = item->value();
    return true;
  }

  /// Reads a finite number from `least` to `most`.
  template <typename T>
  requires std::is_arithmetic_v<T>
  bool read(std::string_view key, T& value, double least = std::numeric_limits<double>::lowest(),
            double most = std::numeric_limits<double>::max()) {
    const SpecItem* const item = find(key);
    if (item == nullptr) return false;
    const std::optional<T> number = parse_number<T>(item->value());
    const auto real = static_cast<double>(number.value_or(0));
    if (!number || !std::isfinite(real) || real < least || real > most)
      refuse_number(*item, std::is_integral_v<T>, least, most);
    value = *number;
    return true;
  }
  template <typename T, typename... Range>
  requires std::is_arithmetic_v<T>
  bool read(std::string_view key, std::optional<T>& value, Range... range) {
    T number = {};
    const bool is_present = read(key, number, range...);
    if (is_present) value = number;
    return is_present;
  }

  /// Reads the result of `convert`. The key is added to its Error.
  template <typename T, typename Convert>
  bool read_parsed(std::string_view key, T& value, Convert convert) {
    const SpecItem* const item = find(key);
    if (item == nullptr) return false;
    try {
      value = convert(item->value());
    } catch (const Error& error) {
      throw Error(ErrorCategory::input, where_ + ": " + std::string(key), error.message().expected,
                  error.message().actual);
    }
    return true;
  }
  template <typename Enum, std::size_t N>
  bool read(std::string_view key, Enum& value, const EnumNames<Enum, N>& names) {
    return read_parsed(key, value,
                       [&](const std::string& text) { return names.parse(where_, text); });
  }

  /// Throws unless every item was read. The message lists the values and keys that are known.
  void finish() const;
  /// Throws Error `[where] EXPECTED, got "ITEM"` with the item of `key`, or with the whole text if
  /// `key` is empty.
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  Spec(std::string_view where, std::string_view text) : where_(where), text_(text) {}
  void split_at(std::size_t colon);
  void split_at_key(std::initializer_list<std::string_view> words);
  void read_items(std::size_t begin);
  [[noreturn]] void refuse_number(const SpecItem& item, bool is_whole, double least,
                                  double most) const;

  std::string where_;
  std::string text_;
  std::string head_;
  std::vector<SpecItem> items_;
  std::vector<std::string> known_;  // values and keys that were queried: "word", "key="
};

}  // namespace lockstep::inline v0
