// Options of commands that follow from lists of fields (lockstep/base/fields/fields.h).
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/fields/bound_fields.h"

namespace lockstep::inline v0::apps {

/// Declares an option for each field with a help. The object of the fields must outlive the
/// command. A value is converted when the command line is parsed.
void add_fields(CLI::App& command, const std::vector<BoundField>& fields);

/// The fields that have one of these keys.
std::vector<BoundField> fields_with(std::vector<BoundField> fields,
                                    std::initializer_list<std::string_view> keys);
/// The fields that have none of these keys.
std::vector<BoundField> fields_without(std::vector<BoundField> fields,
                                       std::initializer_list<std::string_view> keys);

/// A `name=value` line for each value of each field that is an option, as --config reads them;
/// `name=""` for one that is not set.
std::string config_text(std::span<const BoundField> fields);

/// The options that are set, with their values: "devices" and "cpu:0".
std::vector<std::pair<std::string, std::string>> config_values(std::span<const BoundField> fields);

/// The options of `command` as JSON: name, aliases, kind, value, choices, range, default, group,
/// help. Those of add_fields() have all of it.
nlohmann::ordered_json schema_of(const CLI::App& command);

}  // namespace lockstep::inline v0::apps
