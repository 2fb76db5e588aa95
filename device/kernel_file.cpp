#include "device/kernel_file.h"

#include <fstream>

namespace lockstep::device {

std::optional<std::int64_t> number_of(const std::filesystem::path& file) {
  std::ifstream text(file);
  if (std::int64_t number = 0; text >> number) return number;
  return std::nullopt;
}

std::optional<std::int64_t> number_in(const std::filesystem::path& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string word, rest; lines >> word; std::getline(lines, rest)) {
    if (std::int64_t number = 0; word == name && lines >> number) return number;
  }
  return std::nullopt;
}

}  // namespace lockstep::device
