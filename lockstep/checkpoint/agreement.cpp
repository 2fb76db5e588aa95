#include "lockstep/checkpoint/agreement.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/system/host.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/job/agreement.h"

namespace lockstep::inline v0::checkpoint {
namespace {

using nlohmann::json;

std::vector<TensorView> tensors_of(const std::string& file, const ReplicaArrays& arrays) {
  return file == kModelFile ? model_tensors(arrays) : optimizer_tensors(arrays);
}

/// The first tensor of `file` in which `rank` differs from the chief; empty if none differs.
/// Collective.
std::string first_difference(const allreduce::Communicator& ranks, int rank,
                             const std::string& file, const ReplicaArrays& arrays) {
  json hashes = json::object();
  for (const TensorView& tensor : tensors_of(file, arrays)) {
    const auto values = std::get<std::span<const float>>(tensor.values);
    Hasher hasher;
    hasher.add({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
    hashes[tensor.name] = model::to_string(tensor.shape) + " " + hex16(hasher.value());
  }
  const std::vector<std::string> all = job::Agreement(ranks).gather(dump_json(hashes));
  const json chief = parse_json(all.front(), ErrorCategory::communication, "state of a rank");
  const json other = parse_json(all[rank], ErrorCategory::communication, "state of a rank");
  for (const auto& [name, hash] : chief.items())
    if (!other.contains(name) || other[name] != hash) return name;
  for (const auto& [name, hash] : other.items())
    if (!chief.contains(name)) return name;
  return {};
}

[[noreturn]] void refuse_differing(const std::string& rank, const std::string& given) {
  throw Error(ErrorCategory::checkpoint, "checkpoint", "expected identical replicas on all ranks",
              rank + " " + given);
}

}  // namespace

std::vector<std::string> on_every_rank(const allreduce::Communicator& ranks,
                                       const std::function<std::string()>& work) {
  const auto on_files = [&] {
    const FileProgress progress(ranks.activity());
    return work();
  };
  return job::Agreement(ranks).all_or_none(ErrorCategory::checkpoint, "checkpoint",
                                           "expected every rank to succeed", on_files);
}

void broadcast_file(const allreduce::Communicator& ranks,
                    std::shared_ptr<const std::string>& content) {
  std::uint64_t bytes = content ? content->size() : 0;
  ranks.broadcast(std::as_writable_bytes(std::span(&bytes, 1)), 0);
  std::string shared = ranks.rank() == 0 && content ? *content : "";
  shared.resize(bytes);
  if (bytes > 0) ranks.broadcast(std::as_writable_bytes(std::span(shared)), 0);
  content = bytes > 0 ? std::make_shared<const std::string>(std::move(shared)) : nullptr;
}

std::string describe_files(const TrainingState& state, std::span<const FileDigest> files) {
  json description = {
      {"host", host_name()},
      {"position", fmt::format("step {}, epoch {}, seed {}, global batch {}, {}", state.step,
                               state.epoch, state.seed, state.global_batch, state.precision)},
      {"files", json::object()}};
  for (const FileDigest& file : files)
    if (file.name != kStateFile && file.name != kTokenizerFile && file.name != kScriptFile)
      description["files"][file.name] =
          fmt::format("{} bytes, xxh3 {}", file.bytes, hex16(file.xxh3));
  return dump_json(description);
}

void check_identical(const allreduce::Communicator& ranks,
                     std::span<const std::string> descriptions, const ReplicaArrays& arrays) {
  const json chief =
      parse_json(descriptions.front(), ErrorCategory::communication, "state of a rank");
  for (std::size_t rank = 1; rank < descriptions.size(); ++rank) {
    const json other =
        parse_json(descriptions[rank], ErrorCategory::communication, "state of a rank");
    const std::string who = fmt::format("rank {} on {}", rank, other["host"].get<std::string>());
    if (other["position"] != chief["position"])
      refuse_differing(
          who, fmt::format("is at {}, the chief at {}", other["position"].get<std::string>(),
                           chief["position"].get<std::string>()));
    for (const auto& [file, value] : chief["files"].items()) {
      const auto digest = value.get<std::string>();
      const std::string found = other["files"].value(file, "no such file");
      if (found == digest) continue;
      const std::string tensor = first_difference(ranks, static_cast<int>(rank), file, arrays);
      refuse_differing(who, fmt::format("has a different {} in {} ({}; the chief's has {})",
                                        tensor.empty() ? "header" : tensor, file, found, digest));
    }
  }
}

}  // namespace lockstep::inline v0::checkpoint
