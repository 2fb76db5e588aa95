#include "apps/lockstep/launch/fields.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::apps::launch {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
constexpr int kMaxDepth = 3;
constexpr std::size_t kMaxHostName = 255;
constexpr std::size_t kMaxGpuList = 4096;
constexpr std::size_t kMaxProcessors = 8192;

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

}  // namespace

void refuse(std::string_view expected, std::string_view got) {
  throw Error(ErrorCategory::communication, "launch", fmt::format("expected {}", expected), fmt::format("got {}", got));
}

json parse_fields(std::string_view text, std::size_t values) {
  return parse_json(text, ErrorCategory::communication, "launch",
                    {.bytes = kMaxBytes, .depth = kMaxDepth, .values = values});
}

const json& field(const json& object, const char* name) {
  if (!object.is_object() || !object.contains(name))
    refuse(fmt::format("an object with \"{}\"", name), describe_json(object));
  return object[name];
}

const json& element(const json& array, std::size_t index) {
  if (!array.is_array() || index >= array.size())
    refuse(fmt::format("an array of more than {} elements", index), describe_json(array));
  return array[index];
}

const json& require_array(const json& value, std::size_t most) {
  if (!value.is_array() || value.size() > most)
    refuse(fmt::format("an array of at most {} elements", most), describe_json(value));
  return value;
}

int integer_of(const json& value, int least, int most) {
  // A larger number of 64 bits is no less out of range for being read as another.
  const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT32_MAX)
                                               : value.is_number_integer();
  if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
    refuse(fmt::format("a number from {} to {}", least, most), describe_json(value));
  return value.get<int>();
}

std::string text_of(const json& value, std::size_t most) {
  if (!value.is_string() || value.get_ref<const std::string&>().size() > most)
    refuse(fmt::format("a text of at most {} bytes", most), describe_json(value));
  return value.get<std::string>();
}

std::string line_of(const json& value, std::size_t most) {
  std::string line = text_of(value, most);
  if (std::ranges::any_of(line, is_control)) refuse("a text without control characters", describe_json(value));
  return line;
}

std::vector<int> processors_of(const json& value) {
  std::vector<int> processors;
  for (const json& one : require_array(value, kMaxProcessors)) processors.push_back(integer_of(one, 0, INT32_MAX));
  return processors;
}

int parse_integer(std::string_view text, int least, int most) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    refuse(fmt::format("a number from {} to {}", least, most),
           fmt::format("{}", describe_json(std::string(text.substr(0, kMaxHostName)))));
  return value;
}

bool consists_of(std::string_view text, std::string_view more) {
  return std::ranges::all_of(text,
                             [&](char c) { return is_letter_or_digit(c) || more.find(c) != std::string_view::npos; });
}

bool is_host_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxHostName && !name.starts_with('-') && consists_of(name, ".-_");
}

bool is_interface_name(std::string_view name) {
  return name.size() < IFNAMSIZ && !name.starts_with('-') && consists_of(name, ".-_:@");
}

bool is_gpu_list(std::string_view list) { return list.size() <= kMaxGpuList && consists_of(list, "-_,./: "); }

bool is_address(std::string_view address) {
  const std::size_t scope = address.find('%');
  if (scope != std::string_view::npos && !is_interface_name(address.substr(scope + 1))) return false;
  const std::string number(address.substr(0, scope));
  in6_addr parsed{};
  return inet_pton(AF_INET, number.c_str(), &parsed) == 1 || inet_pton(AF_INET6, number.c_str(), &parsed) == 1;
}

}  // namespace lockstep::apps::launch
