#include "lockstep/job/operator_settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <span>

#include "lockstep/allreduce/groups/route.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/bound_fields.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::job {
namespace {

constexpr std::string_view kPrefix = "LOCKSTEP_";

std::string variable_of(const BoundField& field) {
  std::string name(kPrefix);
  for (const char letter : field.text->key)
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

// `value_of` returns the text of a variable; nullopt: not set.
OperatorSettings parsed(
    const std::function<std::optional<std::string>(const std::string&)>& value_of) {
  OperatorSettings settings;
  for (const BoundField& field : fields_of(settings)) {
    const std::string name = variable_of(field);
    const std::optional<std::string> text = value_of(name);
    if (!text) continue;
    try {
      if (text->empty()) refuse_value(name, "to have a value", *text);
      field.parse(name, std::span(&*text, 1));
    } catch (const Error& error) {
      // A choice is refused without its name.
      std::string expected = error.message().expected;
      if (constexpr std::string_view kExpected = "expected "; expected.find(name) == expected.npos)
        expected.insert(kExpected.size(), name + " to be ");
      throw Error(ErrorCategory::input, "environment", expected, error.message().actual);
    }
  }
  if (!settings.allreduce.empty()) static_cast<void>(allreduce::parse_route(settings.allreduce));
  return settings;
}

}  // namespace

OperatorSettings OperatorSettings::of(const Environment& environment) {
  return parsed([&](const std::string& name) {
    const char* const text = environment(name.c_str());
    return text == nullptr ? std::nullopt : std::optional<std::string>(text);
  });
}

std::string OperatorSettings::lines() const {
  std::string all;
  for (const BoundField& field : fields_of(*this))
    if (!field.is_standard()) all += fmt::format("{}={}\n", variable_of(field), field.print());
  return all;
}

OperatorSettings OperatorSettings::from_lines(std::string_view lines) {
  return parsed([&](const std::string& name) -> std::optional<std::string> {
    for (std::string_view rest = lines; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.starts_with(name) && line.substr(name.size()).starts_with('='))
        return std::string(line.substr(name.size() + 1));
    }
    return std::nullopt;
  });
}

std::vector<std::string> OperatorSettings::of_wrapped_loops() const {
  OperatorSettings others = *this;
  others.stall_timeout.reset();
  others.start_timeout.reset();
  others.transport = {};
  others.rendezvous.clear();
  std::vector<std::string> names;
  for (const BoundField& field : fields_of(others))
    if (!field.is_standard()) names.push_back(variable_of(field));
  return names;
}

std::vector<std::string> similar_variables() {
  const OperatorSettings settings;
  std::vector<std::string> names;
  for (const BoundField& field : fields_of(settings)) names.push_back(variable_of(field));
  // The words after the prefix, which all names have in common.
  std::vector<std::string_view> words;
  for (const std::string& name : names)
    words.push_back(std::string_view(name).substr(kPrefix.size()));
  std::vector<std::string> warnings;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view entry = *variable;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix) || std::ranges::find(names, name) != names.end()) continue;
    const std::string got = got_name(name.substr(kPrefix.size()), words);
    if (const std::size_t hint = got.find(" (did you mean "); hint != std::string::npos)
      warnings.push_back(
          fmt::format("{} is not used (did you mean {}{}", name, kPrefix,
                      got.substr(hint + std::string_view(" (did you mean ").size())));
  }
  return warnings;
}

}  // namespace lockstep::inline v0::job

namespace lockstep::inline v0 {

using SettingFields = Fields<job::OperatorSettings>;

std::vector<std::string> SettingFields::print_trace(const Options& options) {
  return options.trace.file.empty() ? std::vector<std::string>{}
                                    : std::vector{to_string(options.trace)};
}

void SettingFields::parse_trace(Options& options, std::string_view /*name*/,
                                std::span<const std::string> values) {
  options.trace = job::parse_trace(values.back());
}

}  // namespace lockstep::inline v0
