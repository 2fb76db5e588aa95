// Helpful refusals of a name: what is known, and what was probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::model {

/// "a, b, c"
std::string list_names(std::span<const std::string_view> names);

/// `got "reluu" (did you mean relu?)`; without the question where no known name is near.
std::string got_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace lockstep::model
