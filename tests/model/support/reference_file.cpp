#include "tests/model/support/reference_file.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/paths.h"

namespace lockstep::inline v0::model {
namespace {

template <typename T>
std::vector<T> copy_of(std::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

template <typename Map>
const auto& at(const Map& map, const std::string& name) {
  const auto found = map.find(name);
  if (found == map.end()) throw std::out_of_range("the reference has no " + name);
  return found->second;
}

}  // namespace

ReferenceFile::ReferenceFile(const std::string& name) {
  // The directory of the files for programs built on another machine.
  const char* const moved = std::getenv("LOCKSTEP_SOURCE_DIR");
  const std::string path = (moved != nullptr ? moved : LOCKSTEP_SOURCE_DIR) +
                           ("/tests/reference/" + name + ".safetensors");
  std::ifstream stream(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  std::uint64_t header_size = 0;
  if (file.size() < sizeof(header_size)) throw std::runtime_error("no reference in " + path);
  std::memcpy(&header_size, file.data(), sizeof(header_size));
  const auto header = nlohmann::json::parse(file.substr(sizeof(header_size), header_size));
  const std::string_view data = std::string_view(file).substr(sizeof(header_size) + header_size);
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    const auto offsets = entry.at("data_offsets").get<std::vector<std::size_t>>();
    const std::string_view bytes = data.substr(offsets.at(0), offsets.at(1) - offsets.at(0));
    if (entry.at("dtype") == "I32")
      integers_[key] = copy_of<std::int32_t>(bytes);
    else
      arrays_[key] = {entry.at("shape").get<Shape>(), copy_of<float>(bytes)};
  }
}

const ReferenceFile::Array& ReferenceFile::array(const std::string& name) const {
  return at(arrays_, name);
}
const std::vector<std::int32_t>& ReferenceFile::integers(const std::string& name) const {
  return at(integers_, name);
}

std::vector<std::string> ReferenceFile::names(std::string_view prefix) const {
  std::vector<std::string> result;
  for (const auto& [name, array] : arrays_)
    if (name.starts_with(prefix)) result.push_back(name);
  return result;
}

}  // namespace lockstep::inline v0::model
