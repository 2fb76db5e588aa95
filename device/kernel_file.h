// Numbers in the small text files by which the kernel tells things.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::device {

/// The number that a file begins with; nothing where there is none, as in "max", or no such file.
std::optional<std::int64_t> number_of(const std::filesystem::path& file);

/// The number behind `name` in a file of lines "name number ...".
std::optional<std::int64_t> number_in(const std::filesystem::path& file, const std::string& name);

}  // namespace lockstep::device
