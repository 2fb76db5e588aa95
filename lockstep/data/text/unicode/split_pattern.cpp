#include "lockstep/data/text/unicode/split_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::size_t kNoMatch = std::string_view::npos;
constexpr std::size_t kMaxPatternBytes = 4096;
/// Steps for each byte of a text, beyond a free number. Patterns of tokenizers take two to ten.
constexpr std::size_t kStepsPerByte = 200;
constexpr std::size_t kFreeSteps = 1 << 20;

[[noreturn]] void refuse_pattern(std::string_view what) {
  throw std::invalid_argument(fmt::format("its pattern has {}, which is not supported", what));
}

/// Adds `code`, in both cases if `ignores_case`. Oniguruma folds the long s as an s, and the sign
/// of kelvin as a k.
void add_code(CodeSet& set, char32_t code, bool ignores_case) {
  set.ranges.push_back({code, code});
  const char32_t lower = code | 0x20;
  if (!ignores_case || lower < 'a' || lower > 'z') return;
  set.ranges.insert(set.ranges.end(), {{lower, lower}, {lower ^ 0x20, lower ^ 0x20}});
  if (lower == 's') set.ranges.push_back({0x17F, 0x17F});
  if (lower == 'k') set.ranges.push_back({0x212A, 0x212A});
}

}  // namespace

void CodeSet::finish() {
  for (char32_t code = 0; code < 128; ++code) ascii_[code] = computed(code);
}

bool CodeSet::computed(char32_t code) const {
  const bool is_in = (categories & category_bit(code)) != 0 || (has_space && is_space(code)) ||
                     std::ranges::any_of(ranges, [&](const CodeRange& range) {
                       return range.first <= code && code <= range.last;
                     });
  return is_in != is_negated;
}

/// Reads a regular expression from left to right.
class SplitPatternParser {
 public:
  explicit SplitPatternParser(std::string_view regex) : rest_(regex) {
    if (regex.empty() || regex.size() > kMaxPatternBytes)
      refuse_pattern("no or too many characters");
  }

  std::vector<std::vector<SplitPattern::Part>> alternatives() {
    std::vector<std::vector<Part>> all(1);
    while (!rest_.empty()) {
      if (skip("|"))
        all.emplace_back();
      else
        all.back().push_back(part());
    }
    if (std::ranges::any_of(all, [](const auto& parts) { return parts.empty(); }))
      refuse_pattern("an empty alternative");
    return all;
  }

 private:
  using Part = SplitPattern::Part;

  bool skip(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  char32_t next() {
    if (rest_.empty()) refuse_pattern("an end within a class or group");
    std::size_t at = 0;
    const char32_t code = next_code_point(rest_, at);
    rest_.remove_prefix(at);
    return code;
  }

  Part part() {
    if (skip("(?!\\S)")) return {.kind = Part::Kind::not_before_text};
    Part part;
    if (skip("(?i:")) {
      part = group(true);
    } else if (skip("(?:")) {
      part = group(false);
    } else {
      part.set = atom(false);
      quantify(part);
    }
    return part;
  }

  /// The literals up to the closing parenthesis, and a ? after it.
  Part group(bool ignores_case) {
    Part part{.kind = Part::Kind::group, .choices = std::vector<std::vector<CodeSet>>(1)};
    while (!skip(")")) {
      if (skip("|"))
        part.choices.emplace_back();
      else
        part.choices.back().push_back(atom(ignores_case));
    }
    part.least = skip("?") ? 0 : 1;
    if (!rest_.empty() && std::string_view("?*+{").find(rest_.front()) != kNoMatch)
      refuse_pattern("a repeated group");
    return part;
  }

  void quantify(Part& part) {
    constexpr std::size_t kEndless = std::numeric_limits<std::size_t>::max();
    if (skip("?")) {
      part.least = 0;
    } else if (skip("*")) {
      part.least = 0;
      part.most = kEndless;
    } else if (skip("+")) {
      part.most = kEndless;
    } else if (skip("{")) {
      part.least = number();
      part.most = skip(",") ? (rest_.starts_with('}') ? kEndless : number()) : part.least;
      if (!skip("}") || part.least > part.most) refuse_pattern("a malformed {");
    } else {
      return;
    }
    part.is_possessive = skip("+");
    if (rest_.starts_with('?')) refuse_pattern("a lazy quantifier");
  }

  std::size_t number() {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) refuse_pattern("a malformed {");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  /// A class, an escape or a literal character.
  CodeSet atom(bool ignores_case) {
    CodeSet set;
    if (skip("[")) {
      read_class(set, ignores_case);
    } else if (skip("\\S")) {
      set.has_space = set.is_negated = true;
    } else if (skip("\\")) {
      if (const auto code = read_escape(set)) add_code(set, *code, ignores_case);
    } else {
      const char32_t code = next();
      if (code < 128 && std::string_view("(){}*+?.^$").find(static_cast<char>(code)) != kNoMatch)
        refuse_pattern(fmt::format("\"{}\" there", static_cast<char>(code)));
      add_code(set, code, ignores_case);
    }
    set.finish();
    return set;
  }

  /// What follows "[", up to "]".
  void read_class(CodeSet& set, bool ignores_case) {
    set.is_negated = skip("^");
    for (bool is_first = true; is_first || !rest_.starts_with(']'); is_first = false) {
      std::optional<char32_t> code;
      if (skip("\\")) {
        code = read_escape(set);
      } else {
        if (rest_.starts_with('[') || rest_.starts_with("&&"))
          refuse_pattern("a class within a class");
        code = next();
      }
      if (!code) continue;
      if (rest_.size() < 2 || rest_[0] != '-' || rest_[1] == ']') {
        add_code(set, *code, ignores_case);
        continue;
      }
      skip("-");
      CodeSet ignored;
      const std::optional<char32_t> last = skip("\\") ? read_escape(ignored) : next();
      if (!last || *last < *code || ignores_case) refuse_pattern("a malformed range in a class");
      set.ranges.push_back({*code, *last});
    }
    skip("]");
  }

  /// What follows a backslash: a character, or what it adds to the set.
  std::optional<char32_t> read_escape(CodeSet& set) {
    const char32_t code = next();
    switch (code) {
      case 'p':
        read_property(set);
        return std::nullopt;
      case 's':
        set.has_space = true;
        return std::nullopt;
      case 'd':
        set.categories |= categories_of("Nd");
        return std::nullopt;
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case 't':
        return '\t';
      default:
        break;
    }
    const char32_t lower = code | 0x20;
    if (code >= 128 || (lower >= 'a' && lower <= 'z') || (code >= '0' && code <= '9')) {
      std::string escape = "\"\\";
      append_utf8(code, escape);
      refuse_pattern(escape + '"');
    }
    return code;
  }

  void read_property(CodeSet& set) {
    const std::size_t end = rest_.find('}');
    const std::string_view name =
        rest_.starts_with('{') && end != kNoMatch ? rest_.substr(1, end - 1) : "";
    const std::uint32_t categories = categories_of(name);
    if (categories == 0) refuse_pattern(fmt::format("the property \"{}\"", name));
    set.categories |= categories;
    rest_.remove_prefix(end + 1);
  }

  std::string_view rest_;
};

SplitPattern::SplitPattern(std::string_view regex) {
  for (std::vector<Part>& parts : SplitPatternParser(regex).alternatives()) add(std::move(parts));
}

SplitPattern SplitPattern::literal(std::string_view text) {
  std::vector<Part> parts;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    Part& part = parts.emplace_back();
    part.set.ranges.push_back({code, code});
    part.set.finish();
  }
  SplitPattern pattern;
  pattern.add(std::move(parts));
  return pattern;
}

void SplitPattern::add(std::vector<Part> parts) {
  std::bitset<128> first;
  bool may_be_empty = true;
  for (std::size_t i = 0; i < parts.size() && may_be_empty; ++i) {
    if (parts[i].kind == Part::Kind::run) first |= parts[i].set.ascii();
    for (const std::vector<CodeSet>& choice : parts[i].choices)
      if (!choice.empty()) first |= choice.front().ascii();
    may_be_empty = parts[i].least == 0 || parts[i].kind == Part::Kind::not_before_text ||
                   std::ranges::any_of(parts[i].choices, &std::vector<CodeSet>::empty);
  }
  first_ |= first;
  alternatives_.push_back({std::move(parts), first});
}

/// Finds matches in a text, and counts its steps.
class SplitPattern::Matcher {
 public:
  explicit Matcher(std::string_view text) : text_(text) {}

  /// The end of the match of `parts` at `at`; npos if there is none.
  std::size_t match(Parts parts, std::size_t at) {
    if (parts.empty()) return at;
    const Parts rest = parts.subspan(1);
    switch (parts.front().kind) {
      case Part::Kind::run:
        return match_run(parts.front(), rest, at);
      case Part::Kind::group:
        return match_group(parts.front(), rest, at);
      case Part::Kind::not_before_text:
        break;
    }
    const bool is_before_text = at < text_.size() && !is_space(code_at(at).first);
    return is_before_text ? kNoMatch : match(rest, at);
  }

  /// The code point at `at`, and its end.
  std::pair<char32_t, std::size_t> code_at(std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 128) return {byte, at + 1};
    const char32_t code = next_code_point(text_, at);
    return {code, at};
  }

 private:
  std::size_t match_run(const Part& part, Parts rest, std::size_t at) {
    std::size_t count = 0;
    std::size_t end = at;
    while (count < part.most && end < text_.size()) {
      const auto [code, next] = code_at(end);
      if (!part.set.contains(code)) break;
      end = next;
      ++count;
    }
    add_steps(count + 1);
    if (rest.empty()) return count >= part.least ? end : kNoMatch;
    for (; count >= part.least; --count) {
      const std::size_t found = match(rest, end);
      if (found != kNoMatch || count == part.least || part.is_possessive) return found;
      add_steps(1);
      do --end;
      while ((static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80);
    }
    return kNoMatch;
  }

  std::size_t match_group(const Part& part, Parts rest, std::size_t at) {
    add_steps(part.choices.size());
    for (const std::vector<CodeSet>& choice : part.choices) {
      std::size_t end = at;
      const bool is_match = std::ranges::all_of(choice, [&](const CodeSet& set) {
        return end < text_.size() && set.contains(next_code_point(text_, end));
      });
      const std::size_t found = is_match ? match(rest, end) : kNoMatch;
      if (found != kNoMatch) return found;
    }
    return part.least == 0 ? match(rest, at) : kNoMatch;
  }

  void add_steps(std::size_t count) {
    steps_ += count;
    const std::size_t most = kFreeSteps + kStepsPerByte * text_.size();
    if (steps_ > most)
      throw Error(ErrorCategory::data, "text",
                  "expected a text that the pattern of its tokenizer can split in linear time",
                  fmt::format("got {} bytes that take more than {} steps", text_.size(), most));
  }

  std::string_view text_;
  std::size_t steps_ = 0;
};

void SplitPattern::for_each(std::string_view text,
                            const std::function<void(std::string_view, bool)>& part) const {
  Matcher matcher(text);
  std::size_t first = 0;  // begin of what has not matched
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    std::size_t end = kNoMatch;
    if (byte >= 128 || first_[byte])
      for (const Alternative& alternative : alternatives_) {
        if (byte < 128 && !alternative.first[byte]) continue;
        end = matcher.match(alternative.parts, at);
        if (end != kNoMatch) break;
      }
    if (end == kNoMatch || end == at) {
      at = matcher.code_at(at).second;
      continue;
    }
    if (at > first) part(text.substr(first, at - first), false);
    part(text.substr(at, end - at), true);
    first = at = end;
  }
  if (text.size() > first) part(text.substr(first), false);
}

}  // namespace lockstep::inline v0::data
