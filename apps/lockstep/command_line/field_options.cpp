#include "apps/lockstep/command_line/field_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps {
namespace {

/// The field of each option, for schema_of(): CLI11 keeps texts alone.
std::map<const CLI::Option*, BoundField>& declared() {
  static std::map<const CLI::Option*, BoundField> fields;
  return fields;
}

/// A field without a group is listed where CLI11 lists options by default.
void declare(CLI::Option* option, const BoundField& field) {
  if (!field.text->group.empty()) option->group(std::string(field.text->group));
  declared().emplace(option, field);
}

std::string value_name_of(const BoundField& field) {
  if (!field.more->value.empty()) return std::string(field.more->value);
  switch (field.kind) {
    case FieldKind::flag:
      return "";
    case FieldKind::integer:
      return "N";
    case FieldKind::number:
      return "X";
    case FieldKind::name:
      return fmt::format("{}", fmt::join(field.choices, "|"));
    case FieldKind::text:
    case FieldKind::list:
      break;
  }
  return "TEXT";
}

std::string help_of(const BoundField& field) {
  std::string help(field.text->help);
  if (field.more->names != nullptr)
    if (const std::size_t at = help.find("{}"); at != std::string::npos)
      help.replace(at, 2, field.more->names());
  return help;
}

void add_flag(CLI::App& command, const BoundField& field) {
  const std::string name = field.option();
  const bool is_on = field.standard == std::vector<std::string>{"true"};
  // A flag that is on by default can be turned off.
  const std::string names = is_on ? fmt::format("{0},!--no-{1}", name, name.substr(2)) : name;
  CLI::Option* const option = command.add_flag_function(
      names,
      [field, name](std::int64_t count) {
        const std::string value = count > 0 ? "true" : "false";
        field.parse(name, std::span(&value, 1));
      },
      help_of(field));
  if (is_on) option->default_str("true");
  // CLI11 converts the text of a flag, which it does not check, with std::stoll.
  option->check([](const std::string& text) {
    const bool is_valid = text == "true" || text == "false" || parse_number<std::int64_t>(text);
    return is_valid ? std::string() : std::string("neither true nor false");
  });
  declare(option, field);
}

void add_value(CLI::App& command, const BoundField& field) {
  const std::string name = field.option();
  const std::string names =
      field.more->alias.empty() ? name : fmt::format("{},--{}", name, field.more->alias);
  CLI::Option* const option =
      command
          .add_option_function<std::vector<std::string>>(
              names,
              [field, name](const std::vector<std::string>& given) { field.parse(name, given); },
              help_of(field))
          ->expected(1)
          ->allow_extra_args(false)
          ->multi_option_policy(field.kind == FieldKind::list ? CLI::MultiOptionPolicy::TakeAll
                                                              : CLI::MultiOptionPolicy::TakeLast)
          ->type_name(value_name_of(field));
  if (!field.standard.empty())
    option->default_str(fmt::format("{}", fmt::join(field.standard, ",")));
  declare(option, field);
}

bool is_option(const BoundField& field) { return !field.text->help.empty(); }

/// `value` as --config reads it: a word, or in quotes.
std::string quoted(const BoundField& field, const std::string& value) {
  const bool is_bare = field.kind == FieldKind::flag || field.kind == FieldKind::integer ||
                       field.kind == FieldKind::number;
  if (is_bare) return value;
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c == '\n' ? std::string("\\n") : c == '\r' ? std::string("\\r") : std::string(1, c);
  }
  return text + '"';
}

}  // namespace

void add_fields(CLI::App& command, const std::vector<BoundField>& fields) {
  for (const BoundField& field : fields) {
    if (!is_option(field)) continue;
    if (field.kind == FieldKind::flag)
      add_flag(command, field);
    else
      add_value(command, field);
  }
}

std::vector<BoundField> fields_with(std::vector<BoundField> fields,
                                    std::initializer_list<std::string_view> keys) {
  std::erase_if(fields, [&](const BoundField& field) {
    return std::ranges::find(keys, field.text->key) == keys.end();
  });
  return fields;
}

std::vector<BoundField> fields_without(std::vector<BoundField> fields,
                                       std::initializer_list<std::string_view> keys) {
  std::erase_if(fields, [&](const BoundField& field) {
    return std::ranges::find(keys, field.text->key) != keys.end();
  });
  return fields;
}

std::string config_text(std::span<const BoundField> fields) {
  std::string text;
  for (const BoundField& field : fields) {
    if (!is_option(field)) continue;
    const std::string name = field.option().substr(2);
    const std::vector<std::string> values = field.values();
    for (const std::string& value : values)
      text += fmt::format("{}={}\n", name, quoted(field, value));
    if (values.empty()) text += fmt::format("{}=\"\"\n", name);
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> config_values(std::span<const BoundField> fields) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const BoundField& field : fields)
    if (is_option(field) && !field.values().empty())
      values.emplace_back(field.option().substr(2), field.print());
  return values;
}

nlohmann::ordered_json schema_of(const CLI::App& command) {
  auto options = nlohmann::ordered_json::array();
  for (const CLI::Option* const option : command.get_options()) {
    auto& row = options.emplace_back(nlohmann::ordered_json{{"name", option->get_single_name()},
                                                            {"help", option->get_description()}});
    if (option->get_lnames().size() > 1) {
      std::vector<std::string> others(option->get_lnames().begin() + 1, option->get_lnames().end());
      row["aliases"] = others;
    }
    if (!option->get_group().empty()) row["group"] = option->get_group();
    if (const std::string value = option->get_type_name(); !value.empty()) row["value"] = value;
    if (const std::string value = option->get_default_str(); !value.empty()) row["default"] = value;
    const auto found = declared().find(option);
    if (found == declared().end()) {
      row["kind"] = option->get_items_expected_max() == 0 ? "flag" : "text";
      continue;
    }
    const BoundField& field = found->second;
    row["kind"] = kNamesOf<FieldKind>.name(field.kind);
    if (!field.choices.empty()) row["choices"] = field.choices;
    if (!field.min.empty()) row["minimum"] = field.min;
    if (!field.max.empty()) row["maximum"] = field.max;
    if (!field.more->needs.empty()) row["needs"] = field.more->needs;
  }
  return {{"command", command.get_name()},
          {"help", command.get_description()},
          {"options", std::move(options)}};
}

}  // namespace lockstep::inline v0::apps
