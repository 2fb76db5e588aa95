#include "lockstep/base/json/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/file/file_kind.h"

namespace lockstep::inline v0 {
namespace {

using nlohmann::json;

// Builds the document from the parser's events. The parser keeps its state on the heap, so nesting
// uses no stack.
class Builder : public json::json_sax_t {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t&) override { return refuse("binary data"); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    auto& object = open_.back()->get_ref<json::object_t&>();
    const auto [member, is_new] = object.try_emplace(name);
    if (!is_new) return refuse(fmt::format("the key {} twice", describe_json(name)));
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    if (const FileKind kind = file_kind(text_); kind.content > FileKind::Content::json)
      return refuse(std::string(kind.name));
    return refuse(
        fmt::format("a syntax error at byte {} ({})", position, line_and_column(position)));
  }

  json release() { return std::move(document_); }
  const std::string& refusal() const { return refusal_; }

 private:
  bool add(json value) { return place(std::move(value)) != nullptr; }

  bool open(json container) {
    if (open_.size() >= static_cast<std::size_t>(limits_.depth))
      return refuse(fmt::format("more than {} levels of arrays and objects", limits_.depth));
    json* const where = place(std::move(container));
    if (where == nullptr) return false;
    open_.push_back(where);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  // A container does not move while it is open, because its parent grows only after it is closed.
  json* place(json value) {
    if (++values_ > limits_.values) {
      refuse(fmt::format("more than {} values", limits_.values));
      return nullptr;
    }
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    if (open_.back()->is_array()) {
      auto& array = open_.back()->get_ref<json::array_t&>();
      return &array.emplace_back(std::move(value));
    }
    *member_ = std::move(value);
    return member_;
  }

  bool refuse(std::string what) {
    refusal_ = std::move(what);
    return false;
  }

  /// "line 2, column 5" of byte number `position`.
  std::string line_and_column(std::size_t position) const {
    const std::string_view before = text_.substr(0, position);
    const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    return fmt::format("line {}, column {}", std::ranges::count(before, '\n') + 1,
                       before.size() - line_begin);
  }

  std::string_view text_;
  const JsonLimits& limits_;
  json document_;
  std::vector<json*> open_;
  json* member_ = nullptr;
  std::size_t values_ = 0;
  std::string refusal_;
};

/// nlohmann-json escapes the control characters below U+0020, and writes DEL and C1 as they are.
/// They occur in strings only, because the rest of a document is printable ASCII.
std::string with_escaped_controls(std::string text) {
  constexpr std::string_view kMayBegin = "\x7f\xc2";  // DEL, and the first byte of C1
  std::size_t at = text.find_first_of(kMayBegin);
  if (at == std::string::npos) return text;
  std::string escaped;
  std::size_t done = 0;
  for (; at != std::string::npos; at = text.find_first_of(kMayBegin, at + 1)) {
    const bool is_delete = text[at] == '\x7f';
    const auto code = static_cast<unsigned char>(is_delete ? text[at] : text[at + 1]);
    if (code >= 0xA0) continue;
    escaped.append(text, done, at - done);
    escaped += fmt::format("\\u{:04x}", code);
    done = at + (is_delete ? 1 : 2);
  }
  return escaped.append(text, done);
}

template <typename Json>
std::string dump(const Json& value, int indent) {
  return with_escaped_controls(value.dump(indent, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

json parse_json(std::string_view text, ErrorCategory category, std::string_view where,
                const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    throw Error(category, where, "expected JSON",
                fmt::format("got {} bytes, more than {}", text.size(), limits.bytes));
  Builder builder(text, limits);
  if (!json::sax_parse(text, &builder))
    throw Error(category, where, "expected JSON", "got " + builder.refusal());
  return builder.release();
}

std::string describe_json(const json& value) {
  constexpr std::size_t kMaxLength = 40;
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object())
    return fmt::format("an object of {} key{}", value.size(), value.size() == 1 ? "" : "s");
  if (!value.is_string()) return dump(value, -1);
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() <= kMaxLength) return dump(value, -1);
  return dump(json(text.substr(0, kMaxLength)), -1) + "...";
}

std::string dump_json(const json& value, int indent) { return dump(value, indent); }
std::string dump_json(const nlohmann::ordered_json& value, int indent) {
  return dump(value, indent);
}

std::string pack_json(const json& value) {
  std::string packed;
  json::to_cbor(value, packed);
  return packed;
}

json unpack_json(std::string_view packed) {
  try {
    return json::from_cbor(packed);
  } catch (const json::exception& error) {
    throw Error(ErrorCategory::communication, "message of a rank", "expected CBOR", error.what());
  }
}

}  // namespace lockstep::inline v0
