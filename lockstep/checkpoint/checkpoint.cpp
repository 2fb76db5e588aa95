#include "lockstep/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/updater.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;

void append_tensors(std::vector<TensorView>& tensors, const std::string& prefix,
                    const model::ParameterTable& table, std::span<const float> flat) {
  LOCKSTEP_CHECK_OP(flat.size(), ==, table.flat_size());
  for (const model::ParameterInfo& entry : table.entries())
    tensors.push_back(
        {prefix + entry.name, entry.shape, model::ParameterTable::slice(flat, entry)});
}

void read_tensors(const SafetensorsFile& file, const std::string& prefix,
                  const model::ParameterTable& table, std::span<float> flat) {
  for (const model::ParameterInfo& entry : table.entries()) {
    const SafetensorsFile::Entry* stored = file.find(prefix + entry.name);
    LOCKSTEP_CHECK(stored != nullptr);
    file.read(*stored, model::ParameterTable::slice(flat, entry));
  }
}

const model::ParameterTable& slot_table(const ReplicaArrays& arrays) {
  return arrays.slot_table != nullptr ? *arrays.slot_table : *arrays.parameter_table;
}

std::string described(const std::string& name, const model::Shape& shape) {
  return name + " " + model::to_string(shape);
}

/// Compares both sides by name; throws at the first difference.
void check_same_tensors(const std::filesystem::path& path, std::vector<TensorView> wanted) {
  const SafetensorsFile file(path);
  std::vector<SafetensorsFile::Entry> stored(file.tensors().begin(), file.tensors().end());
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(wanted.begin(), wanted.end(), by_name);
  std::sort(stored.begin(), stored.end(), by_name);

  const auto refuse = [&](const std::string& expected, const std::string& actual) {
    throw Error(ErrorCategory::checkpoint, path.string(),
                "expected a checkpoint of this model with " + expected,
                "the checkpoint has " + actual);
  };
  for (std::size_t i = 0; i < std::max(wanted.size(), stored.size()); ++i) {
    if (i == stored.size() || (i < wanted.size() && wanted[i].name < stored[i].name))
      refuse(described(wanted[i].name, wanted[i].shape), "no " + wanted[i].name);
    if (i == wanted.size() || stored[i].name < wanted[i].name)
      refuse("no " + stored[i].name, described(stored[i].name, stored[i].shape));
    if (stored[i].shape != wanted[i].shape)
      refuse(described(wanted[i].name, wanted[i].shape),
             described(stored[i].name, stored[i].shape));
  }
}

TensorMetadata metadata_of(const TrainingState& state) {
  return {{"step", std::to_string(state.step)}, {"epoch", std::to_string(state.epoch)}};
}

}  // namespace

std::uint64_t checkpoint_bytes(const ReplicaArrays& arrays, const TrainingState& state) {
  // Names, shapes, the state and the manifest; every tensor takes one entry of the header.
  constexpr std::uint64_t kFixedBytes = 64 << 10;
  constexpr std::uint64_t kBytesPerTensor = 512;
  std::uint64_t bytes = kFixedBytes + arrays.parameters.size_bytes() + arrays.buffers.size_bytes();
  for (const Slot& slot : arrays.slots) bytes += slot.values.size_bytes();
  if (state.tokenizer) bytes += state.tokenizer->size();
  return bytes +
         kBytesPerTensor * (model_tensors(arrays).size() + optimizer_tensors(arrays).size());
}

std::vector<TensorView> model_tensors(const ReplicaArrays& arrays) {
  std::vector<TensorView> tensors;
  append_tensors(tensors, "", *arrays.parameter_table, arrays.parameters);
  if (arrays.buffer_table != nullptr)
    append_tensors(tensors, "", *arrays.buffer_table, arrays.buffers);
  return tensors;
}

std::vector<TensorView> optimizer_tensors(const ReplicaArrays& arrays) {
  std::vector<TensorView> tensors;
  for (const Slot& slot : arrays.slots)
    append_tensors(tensors, slot.name + "/", slot_table(arrays), slot.values);
  return tensors;
}

std::vector<FileDigest> write_checkpoint_files(const std::filesystem::path& directory,
                                               const ReplicaArrays& arrays,
                                               const TrainingState& state,
                                               Destination destination) {
  HashedFile state_file(directory / kStateFile, destination);
  state_file.write(to_json_text(state));
  std::vector<FileDigest> files = {
      write_safetensors(directory / kModelFile, model_tensors(arrays), metadata_of(state),
                        destination),
      write_safetensors(directory / kOptimizerFile, optimizer_tensors(arrays), metadata_of(state),
                        destination),
      state_file.finish()};
  if (state.tokenizer) {
    HashedFile tokenizer(directory / kTokenizerFile, destination);
    tokenizer.write(*state.tokenizer);
    files.push_back(tokenizer.finish());
  }
  return files;
}

void check_checkpoint_fits(const std::filesystem::path& directory, const ReplicaArrays& arrays) {
  check_same_tensors(directory / kModelFile, model_tensors(arrays));
  if (!arrays.slots.empty())
    check_same_tensors(directory / kOptimizerFile, optimizer_tensors(arrays));
}

TrainingState read_checkpoint_files(const std::filesystem::path& directory,
                                    const ReplicaArrays& arrays) {
  const std::filesystem::path state_path = directory / kStateFile;
  TrainingState state = parse_training_state(read_small_file(state_path), state_path.string());
  std::error_code unreadable;  // reported when it is read
  const std::filesystem::path tokenizer = directory / kTokenizerFile;
  if (std::filesystem::exists(tokenizer, unreadable) || unreadable)
    state.tokenizer = std::make_shared<const std::string>(read_small_file(tokenizer));
  const SafetensorsFile model(directory / kModelFile);
  read_tensors(model, "", *arrays.parameter_table, arrays.parameters);
  if (arrays.buffer_table != nullptr) read_tensors(model, "", *arrays.buffer_table, arrays.buffers);
  const SafetensorsFile optimizer(directory / kOptimizerFile);
  if (arrays.slots.empty()) {
    for (const model::ParameterInfo& entry : arrays.parameter_table->entries())
      if (const auto* average =
              optimizer.find(fmt::format("{}/{}", model::kAverageSlot, entry.name));
          average != nullptr && average->shape == entry.shape)
        optimizer.read(*average, model::ParameterTable::slice(arrays.parameters, entry));
  } else {
    for (const Slot& slot : arrays.slots)
      read_tensors(optimizer, slot.name + "/", slot_table(arrays), slot.values);
  }
  return state;
}

}  // namespace lockstep::checkpoint
