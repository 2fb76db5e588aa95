#include "lockstep/model/cuda/algorithm_cache.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "lockstep/base/json/json.h"

namespace lockstep::inline v0::model::cuda {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxBytes = std::size_t{16}
                                  << 20;  // a line of a hundred bytes for each convolution

/// Null if the file is not JSON: the cache is then rebuilt.
nlohmann::json read_json(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::error_code failed;
  if (const auto size = fs::file_size(file, failed); failed || size > kMaxBytes) return nullptr;
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  try {
    return parse_json(text, ErrorCategory::input, file.string());
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

AlgorithmCache::AlgorithmCache(fs::path file) : file_(std::move(file)) { read(); }

std::optional<ConvolutionAlgorithm> AlgorithmCache::find(const std::string& convolution) const {
  const auto found = known_.find(convolution);
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

void AlgorithmCache::add(const std::string& convolution, const ConvolutionAlgorithm& algorithm) {
  known_[convolution] = algorithm;
  const auto added = known_;
  read();  // merge entries that other processes have written
  for (const auto& [name, found] : added) known_[name] = found;
  write();
}

void AlgorithmCache::read() {
  std::error_code failed;
  if (file_.empty() || !fs::is_regular_file(file_, failed)) return;
  const auto all = read_json(file_);
  if (!all.is_object()) return;
  for (const auto& [name, one] : all.items()) {
    const std::size_t fields = one.is_array() ? one.size() : 0;
    if ((fields != 3 && fields != 4) || !one[0].is_number_integer() ||
        !one[1].is_number_integer() || !one[2].is_number_unsigned() ||
        (fields == 4 && !one[3].is_boolean()))
      continue;
    known_[name] = {one[0].get<int>(), one[1].get<int>(), one[2].get<std::size_t>(),
                    fields == 4 && one[3].get<bool>()};
  }
}

void AlgorithmCache::write() const {
  if (file_.empty()) return;
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, one] : known_) {
    all[name] = {one.number, one.math, one.workspace_bytes};
    if (one.folded) all[name].push_back(true);
  }
  std::error_code failed;
  // A link or a special file with this name is not replaced.
  const fs::file_status status = fs::symlink_status(file_, failed);
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  fs::create_directories(file_.parent_path(), failed);
  // Threads share their process id, and hosts that share a file system may have equal process ids.
  std::random_device random;
  const fs::path temporary = fmt::format("{}.{:08x}{:08x}", file_.string(), random(), random());
  std::ofstream stream(temporary);
  stream << dump_json(all, 1) << '\n';
  stream.close();
  if (stream) fs::rename(temporary, file_, failed);
  if (!stream || failed) fs::remove(temporary, failed);
}

fs::path AlgorithmCache::default_file() {
  const auto variable = [](const char* name) -> fs::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  constexpr const char* kName = "convolutions.json";
  if (const fs::path folder = variable("LOCKSTEP_CACHE_DIR"); !folder.empty())
    return folder / kName;
  if (const fs::path caches = variable("XDG_CACHE_HOME"); !caches.empty())
    return caches / "lockstep" / kName;
  if (const fs::path home = variable("HOME"); !home.empty())
    return home / ".cache" / "lockstep" / kName;
  return {};
}

}  // namespace lockstep::inline v0::model::cuda
