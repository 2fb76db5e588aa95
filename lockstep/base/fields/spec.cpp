#include "lockstep/base/fields/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {
namespace {

constexpr std::string_view kSeparators = ",:=+";

bool is_quote(char c) { return c == '\'' || c == '"'; }

/// Whether `text` begins with KEY=, like the items after a path.
bool begins_with_key(std::string_view text) {
  const std::size_t end =
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
  return end != std::string_view::npos && end > 0 && text[end] == '=';
}

bool has_pattern(std::string_view text) {
  return text.find_first_of("*?[{~") != std::string_view::npos;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// Converts "F?label=a,b&drop=c", which is not in this grammar, to "F:label=a+b,drop=c", and
/// "F,label=a" of an existing file to "F:label=a"; otherwise empty.
std::string with_colon(std::string_view text) {
  const std::size_t comma = text.find(',');
  if (comma != std::string_view::npos && begins_with_key(text.substr(comma + 1)) &&
      exists(std::string(text.substr(0, comma))))
    return fmt::format("{}:{}", text.substr(0, comma), text.substr(comma + 1));
  const std::size_t mark = text.rfind('?');
  if (mark == std::string_view::npos || !begins_with_key(text.substr(mark + 1))) return {};
  std::string items(text.substr(mark + 1));
  std::ranges::replace(items, ',', '+');
  std::ranges::replace(items, '&', ',');
  return fmt::format("{}:{}", text.substr(0, mark), items);
}

/// Reads a text word by word.
struct Scanner {
  std::string_view where;
  std::string_view text;
  std::size_t at = 0;
  bool was_quoted = false;  // whether the last word was quoted

  bool done() const { return at == text.size(); }
  char peek() const { return done() ? '\0' : text[at]; }
  bool skip(char c) {
    if (peek() != c) return false;
    ++at;
    return true;
  }

  /// The word before the next separator. A quoted word may contain separators; a doubled quote
  /// stands for one.
  std::string word() {
    const char quote = peek();
    std::string result;
    was_quoted = is_quote(quote);
    if (!was_quoted) {
      const std::size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
      result = text.substr(at, end - at);
      at = end;
      return result;
    }
    const std::size_t begin = at++;
    for (;; ++at) {
      if (done())
        throw Error(ErrorCategory::input, where,
                    fmt::format("expected {} at the end of a quoted value", quote),
                    fmt::format("got {}", text.substr(begin)));
      if (text[at] == quote && !(at + 1 < text.size() && text[at + 1] == quote)) break;
      if (text[at] == quote) ++at;
      result += text[at];
    }
    if (++at < text.size() && kSeparators.find(text[at]) == std::string_view::npos)
      throw Error(ErrorCategory::input, where,
                  "expected one of , : = + after a quoted value, in which a quote is written twice",
                  fmt::format("got {}", text.substr(begin)));
    return result;
  }

  SpecItem item() {
    const std::size_t begin = at;
    SpecItem item;
    std::string first = word();
    if (!was_quoted && skip('=')) {
      item.key = std::move(first);
      first = word();
    }
    const bool is_empty = first.empty() && !was_quoted && peek() != '+';
    item.values.push_back(std::move(first));
    while (skip('+')) item.values.push_back(word());
    const bool is_ended = done() || peek() == ',';
    if (!is_ended) at = std::min(text.find(',', at), text.size());
    item.text = text.substr(begin, at - begin);
    if (!is_ended)
      throw Error(ErrorCategory::input, where,
                  "expected commas between values, and quotes around one with : or =, as in "
                  "label='a:b'",
                  fmt::format("got \"{}\"", item.text));
    if (is_empty)
      throw Error(ErrorCategory::input, where,
                  item.key.empty()
                      ? "expected a value before and after each colon and comma"
                      : fmt::format("expected {0}=VALUE; {0}='' is the empty one", item.key),
                  fmt::format("got \"{}\"", item.key.empty() ? text : item.text));
    return item;
  }
};

}  // namespace

std::string quote_spec(std::string_view value) {
  if (!value.empty() && !is_quote(value.front()) &&
      value.find_first_of(kSeparators) == std::string_view::npos)
    return std::string(value);
  std::string quoted = "'";
  for (const char c : value) quoted.append(c == '\'' ? 2 : 1, c);
  return quoted + "'";
}

std::string quote_spec(std::span<const std::string> values) {
  std::string text;
  for (const std::string& value : values)
    text.append(text.empty() ? "" : "+").append(quote_spec(value));
  return text;
}

std::vector<std::string> split_specs(std::string_view where, std::string_view text) {
  std::vector<std::string> parts;
  for (Scanner scanner{where, text};;) {
    const std::size_t begin = scanner.at;
    scanner.word();
    const bool continues = scanner.peek() == '=' && !parts.empty();
    while (!scanner.done() && scanner.peek() != ',') {
      ++scanner.at;
      scanner.word();
    }
    const std::string_view part = text.substr(begin, scanner.at - begin);
    if (continues)
      parts.back().append(",").append(part);
    else
      parts.emplace_back(part);
    if (!scanner.skip(',')) return parts;
  }
}

std::optional<std::pair<std::string, std::string_view>> cut_spec(std::string_view where,
                                                                 std::string_view text,
                                                                 char separator) {
  Scanner scanner{where, text};
  std::string word = scanner.word();
  if (!scanner.skip(separator)) return std::nullopt;
  return std::pair(std::move(word), text.substr(scanner.at));
}

std::optional<std::vector<std::int64_t>> parse_extents(std::string_view text) {
  std::vector<std::int64_t> extents;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    const auto extent = parse_number<std::int64_t>(text.substr(begin, end - begin));
    if (!extent || *extent < 1) return std::nullopt;
    extents.push_back(*extent);
    begin = end + 1;
  }
  return extents;
}

std::vector<std::string> glob_names(const std::string& pattern) {
  glob_t found = {};
  const int result =
      ::glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE | GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> names;
  if (result == 0) names.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return names;
}

std::string SpecItem::value() const { return fmt::format("{}", fmt::join(values, "+")); }

void Spec::read_items(std::size_t begin) {
  Scanner scanner{where_, text_, begin};
  do {
    SpecItem item = scanner.item();
    const auto same = std::ranges::find(items_, item.key, &SpecItem::key);
    if (!item.key.empty() && same != items_.end())
      throw Error(ErrorCategory::input, where_, fmt::format("expected {}= once", item.key),
                  fmt::format("got \"{}\" and \"{}\"", same->text, item.text));
    items_.push_back(std::move(item));
  } while (scanner.skip(','));
}

Spec Spec::of_items(std::string_view where, std::string_view text) {
  Spec spec(where, text);
  spec.read_items(0);
  return spec;
}

Spec Spec::parse(std::string_view where, std::string_view text) {
  Spec spec(where, text);
  const bool is_quoted = !text.empty() && is_quote(text.front());
  Scanner scanner{where, text};
  if (is_quoted)
    spec.head_ = scanner.word();
  else
    spec.head_ = text.substr(0, scanner.at = std::min(text.find(':'), text.size()));
  if (scanner.skip(':'))
    spec.read_items(scanner.at);
  else if (!scanner.done())
    spec.refuse("", fmt::format("expected : after {}", spec.head_));
  return spec;
}

void Spec::split_at_key(std::initializer_list<std::string_view> words) {
  const std::string_view text = text_;
  std::size_t colon = text.find(':');
  const auto is_end = [&](std::string_view rest) {
    return begins_with_key(rest) || std::ranges::find(words, rest) != words.end();
  };
  while (colon < text.size() && !is_end(text.substr(colon + 1))) colon = text.find(':', colon + 1);
  split_at(colon);
}

void Spec::split_at(std::size_t colon) {
  head_ = text_.substr(0, colon);
  if (colon < text_.size()) read_items(colon + 1);
}

Spec Spec::of_pattern(std::string_view where, std::string_view text) {
  if (!text.empty() && is_quote(text.front())) return parse(where, text);
  Spec spec(where, text);
  spec.split_at_key({});
  return spec;
}

Spec Spec::of_path(std::string_view where, std::string_view text,
                   std::initializer_list<std::string_view> words) {
  if (!text.empty() && is_quote(text.front())) return parse(where, text);
  Spec spec(where, text);
  for (std::size_t end = text.size(); end != std::string_view::npos && end > 0;
       end = text.rfind(':', end - 1)) {
    const std::string path(text.substr(0, end));
    if (!exists(path) && (!has_pattern(path) || glob_names(path).empty())) continue;
    spec.split_at(end);
    return spec;
  }
  if (const std::string better = with_colon(text); !better.empty())
    throw Error(ErrorCategory::input, where,
                fmt::format("expected options after a colon, with commas between them: {}", better),
                fmt::format("got \"{}\"", text));
  spec.split_at_key(words);
  return spec;
}

const SpecItem* Spec::find(std::string_view key) {
  known_.push_back(fmt::format("{}=", key));
  const auto found = std::ranges::find(items_, key, &SpecItem::key);
  if (found == items_.end()) return nullptr;
  found->is_read = true;
  return &*found;
}

bool Spec::take(std::string_view word) {
  known_.emplace_back(word);
  const auto found = std::ranges::find_if(items_, [&](const SpecItem& item) {
    return item.key.empty() && !item.is_read && item.value() == word;
  });
  if (found == items_.end()) return false;
  return found->is_read = true;
}

std::optional<std::string> Spec::next(std::string_view name) {
  if (std::ranges::find(known_, name) == known_.end()) known_.emplace_back(name);
  const auto found = std::ranges::find_if(
      items_, [](const SpecItem& item) { return item.key.empty() && !item.is_read; });
  if (found == items_.end()) return std::nullopt;
  found->is_read = true;
  return found->value();
}

void Spec::finish() const {
  const auto unread = std::ranges::find(items_, false, &SpecItem::is_read);
  if (unread == items_.end()) return;
  const std::vector<std::string_view> known(known_.begin(), known_.end());
  std::vector<std::string_view> names = known;
  for (std::string_view& name : names) name = name.substr(0, name.find('='));
  const std::string list = list_names(known, " or ");
  const bool follows_key =
      unread->key.empty() && unread != items_.begin() && !std::prev(unread)->key.empty();
  throw Error(ErrorCategory::input, where_,
              known.empty()   ? fmt::format("expected {} without settings", head_)
              : head_.empty() ? fmt::format("expected {}", list)
                              : fmt::format("expected {} as settings of {}", list, head_),
              follows_key ? fmt::format("got \"{}\" (a list is written {}+{})", unread->value(),
                                        std::prev(unread)->text, unread->text)
                          : got_name(unread->key.empty() ? unread->value() : unread->key, names));
}

void Spec::refuse(std::string_view key, std::string_view expected) const {
  const auto found = std::ranges::find(items_, key, &SpecItem::key);
  const bool has_item = !key.empty() && found != items_.end();
  throw Error(ErrorCategory::input, where_, expected,
              fmt::format("got \"{}\"", has_item ? found->text : text_));
}

void Spec::refuse_number(const SpecItem& item, bool is_whole, double least, double most) const {
  std::string range;
  if (least > std::numeric_limits<double>::lowest()) range = fmt::format(" from {}", least);
  if (most < std::numeric_limits<double>::max())
    range += fmt::format("{} {}", range.empty() ? " of at most" : " to", most);
  else if (!range.empty())
    range = fmt::format(" of at least {}", least);
  throw Error(ErrorCategory::input, where_,
              fmt::format("expected {} to be {}{}", item.key,
                          is_whole ? "a whole number" : "a number", range),
              fmt::format("got \"{}\"", item.text));
}

}  // namespace lockstep::inline v0
