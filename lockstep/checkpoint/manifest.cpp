#include "lockstep/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"

namespace lockstep::inline v0::checkpoint {

namespace {

using nlohmann::json;

constexpr int kManifestFormat = 1;

FileDigest digest_from(const json& file) {
  FileDigest digest{json_member<std::string>(file, "name"),
                    json_member<std::uint64_t>(file, "bytes"), 0};
  const auto hash = json_member<std::string>(file, "xxh3_64");
  const auto value = parse_hex16(hash);
  if (!value) throw std::invalid_argument(fmt::format("\"{}\" is not a checksum", hash));
  // Files are in the directory of the manifest: a name must not contain a path.
  if (std::filesystem::path(digest.name).filename() != digest.name)
    throw std::invalid_argument(fmt::format("\"{}\" is not a file name", digest.name));
  digest.xxh3 = *value;
  return digest;
}

}  // namespace

std::uint64_t Manifest::total_bytes() const {
  std::uint64_t sum = 0;
  for (const FileDigest& file : files) sum += file.bytes;
  return sum;
}

void write_manifest(const std::filesystem::path& directory, const Manifest& manifest) {
  nlohmann::ordered_json text = {{"format", kManifestFormat},   {"step", manifest.step},
                                 {"epoch", manifest.epoch},     {"sequence", manifest.sequence},
                                 {"healthy", manifest.healthy}, {"files", json::array()}};
  if (manifest.best)
    text["best"] = {{"metric", manifest.best->metric}, {"value", manifest.best->value}};
  for (const FileDigest& file : manifest.files)
    text["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3_64", hex16(file.xxh3)}});
  HashedFile file(directory / kManifestName);
  file.write(dump_json(text, 2) + "\n");
  file.finish();
  sync_directory(directory);
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kManifestName;
  const json parsed = parse_json(read_small_file(path), ErrorCategory::checkpoint, path.string());
  try {
    if (const int format = json_member<int>(parsed, "format"); format != kManifestFormat)
      refuse(path, fmt::format("expected format {}", kManifestFormat),
             fmt::format("got {}, which another version of Lockstep wrote", format));
    Manifest manifest{json_member<std::int64_t>(parsed, "step"),
                      json_member<std::int64_t>(parsed, "epoch"),
                      json_member<std::uint64_t>(parsed, "sequence"),
                      {},
                      json_member<bool>(parsed, "healthy")};
    if (parsed.contains("best")) {
      const json best = json_member<json::object_t>(parsed, "best");
      manifest.best = {json_member<std::string>(best, "metric"),
                       json_member<double>(best, "value")};
    }
    for (const json& file : json_member<json::array_t>(parsed, "files"))
      manifest.files.push_back(digest_from(file));
    for (const char* name : {kModelFile, kOptimizerFile, kStateFile})
      if (std::none_of(manifest.files.begin(), manifest.files.end(),
                       [&](const FileDigest& file) { return file.name == name; }))
        throw std::invalid_argument(fmt::format("it does not list {}", name));
    return manifest;
  } catch (const std::invalid_argument& error) {
    refuse(path, "expected a manifest", error.what());
  }
}

void check_sizes(const std::filesystem::path& directory, const Manifest& manifest) {
  for (const FileDigest& file : manifest.files) {
    const std::filesystem::path path = directory / file.name;
    std::error_code error;
    const std::uint64_t bytes = std::filesystem::file_size(path, error);
    if (error)
      refuse(path, fmt::format("expected a file of {} bytes", file.bytes), error.message());
    if (bytes != file.bytes)
      refuse(path, fmt::format("expected {} bytes", file.bytes), fmt::format("it has {}", bytes));
  }
}

void check_contents(const std::filesystem::path& directory, const Manifest& manifest) {
  check_sizes(directory, manifest);
  for (const FileDigest& file : manifest.files) {
    const FileDigest found = digest_file(directory / file.name);
    if (found != file)
      refuse(directory / file.name, fmt::format("expected checksum {}", hex16(file.xxh3)),
             fmt::format("the {} bytes read have {}", found.bytes, hex16(found.xxh3)));
  }
}

std::string checkpoint_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

}  // namespace lockstep::inline v0::checkpoint
