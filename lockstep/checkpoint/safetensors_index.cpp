#include "lockstep/checkpoint/safetensors_index.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/checkpoint/files.h"

namespace lockstep::inline v0::checkpoint {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShards = 512;  // each is an open file

/// The tensors of each file by its name.
using WeightMap = std::map<std::string, std::set<std::string>>;

/// Whether a name is that of a safetensors file in the folder of the index.
bool is_plain_name(std::string_view name) {
  constexpr std::string_view kEnding = ".safetensors";
  constexpr std::string_view kForbidden{"/\\\0", 3};
  return name.size() > kEnding.size() && name.ends_with(kEnding) &&
         name.find_first_of(kForbidden) == std::string_view::npos;
}

WeightMap weight_map_of(const std::filesystem::path& index, const json& parsed) {
  const auto found = parsed.is_object() ? parsed.find("weight_map") : parsed.end();
  if (found == parsed.end() || !found->is_object() || found->empty())
    refuse(index, "expected the file of each tensor in \"weight_map\"",
           "got " + describe_json(found == parsed.end() ? parsed : *found));
  WeightMap map;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>()))
      refuse(index,
             fmt::format("expected the name of a .safetensors file in the folder of the index for "
                         "{}",
                         describe_json(tensor)),
             "got " + describe_json(file));
    map[file.get<std::string>()].insert(tensor);
  }
  if (map.size() > kMaxShards)
    refuse(index, fmt::format("expected at most {} files", kMaxShards),
           fmt::format("got {}", map.size()));
  return map;
}

/// Throws Error unless `file` has exactly the tensors that the index says.
void check_tensors(const std::filesystem::path& index, const SafetensorsFile& file,
                   const std::set<std::string>& tensors) {
  const std::string name = file.path().filename().string();
  std::set<std::string_view> stored;
  for (const SafetensorsFile::Entry& entry : file.tensors()) {
    stored.insert(entry.name);
    if (!tensors.contains(entry.name))
      refuse(index, fmt::format("expected all tensors of {} in \"weight_map\"", name),
             fmt::format("it has no {} of that file", describe_json(entry.name)));
  }
  for (const std::string& tensor : tensors)
    if (!stored.contains(tensor))
      refuse(file.path(),
             fmt::format("expected the tensor {}, as {} says", describe_json(tensor),
                         index.filename().string()),
             fmt::format("it is not among the {} tensors of the file", stored.size()));
}

void check_total_size(const std::filesystem::path& index, const json& parsed,
                      std::uint64_t tensor_bytes) {
  const json metadata = parsed.value("metadata", json::object());
  if (!metadata.is_object() || !metadata.contains("total_size")) return;
  const json& total = metadata["total_size"];
  // Some programs write a float.
  if (!total.is_number() || total.get<double>() != static_cast<double>(tensor_bytes))
    refuse(index,
           fmt::format("expected a total_size of {}, the bytes of all tensors in its files; if the "
                       "files are known to be complete, remove it from the index",
                       tensor_bytes),
           "got " + describe_json(total));
}

}  // namespace

std::vector<SafetensorsFile> open_shards(const std::filesystem::path& index) {
  const json parsed = parse_json(read_small_file(index), ErrorCategory::checkpoint, index.string());
  std::vector<SafetensorsFile> files;
  std::uint64_t tensor_bytes = 0;
  for (const auto& [name, tensors] : weight_map_of(index, parsed)) {
    check_tensors(index, files.emplace_back(index.parent_path() / name), tensors);
    for (const SafetensorsFile::Entry& entry : files.back().tensors()) tensor_bytes += entry.bytes;
  }
  check_total_size(index, parsed, tensor_bytes);
  return files;
}

}  // namespace lockstep::inline v0::checkpoint
