// Texts of options, cut where they are separated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// What lies between the separators of `text`; one empty piece for an empty text.
std::vector<std::string> pieces_of(std::string_view text, char separator);

}  // namespace lockstep::data
