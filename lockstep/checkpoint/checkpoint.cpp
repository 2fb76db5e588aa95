#include "lockstep/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/system/file_descriptor.h"
#include "lockstep/base/system/ownership.h"
#include "lockstep/base/text.h"
#include "lockstep/model/optimizer/updater.h"

namespace lockstep::inline v0::checkpoint {
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

/// Compares tensors by name; throws at the first difference.
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

/// Throws Error (checkpoint) if another user may have written the open file or directory `path`.
void require_own(int descriptor, const std::filesystem::path& path) {
  const std::string writer = foreign_writer(descriptor);
  if (!writer.empty())
    refuse(path,
           "expected a TorchScript file, which is a program, that only this user can write, or "
           "--trust-code to run what others wrote",
           writer);
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
  for (const auto& content : {state.tokenizer, state.script})
    if (content) bytes += content->size();
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
  using std::filesystem::perms;
  const bool is_program = state.script && destination != Destination::nowhere;
  std::error_code ignored;  // read_script() reports a file system without permissions
  const perms given =
      is_program ? std::filesystem::status(directory, ignored).permissions() : perms::none;
  // Before the first file, because an open file stays writable.
  if (is_program) std::filesystem::permissions(directory, perms::owner_all, ignored);
  HashedFile state_file(directory / kStateFile, destination);
  state_file.write(to_json_text(state));
  std::vector<FileDigest> files = {
      write_safetensors(directory / kModelFile, model_tensors(arrays), metadata_of(state),
                        destination),
      write_safetensors(directory / kOptimizerFile, optimizer_tensors(arrays), metadata_of(state),
                        destination),
      state_file.finish()};
  for (const auto& [name, content] :
       {std::pair(kTokenizerFile, state.tokenizer), std::pair(kScriptFile, state.script)}) {
    if (!content) continue;
    HashedFile file(directory / name, destination);
    file.write(*content);
    files.push_back(file.finish());
  }
  if (is_program) {
    constexpr perms kOthersWrite = perms::group_write | perms::others_write;
    std::filesystem::permissions(directory / kScriptFile, kOthersWrite,
                                 std::filesystem::perm_options::remove, ignored);
    std::filesystem::permissions(directory, given & ~kOthersWrite, ignored);
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

std::string read_script(const std::filesystem::path& directory, bool is_trusted) {
  const std::filesystem::path path = directory / kScriptFile;
  const char* const expected = "expected the TorchScript file of the checkpoint";
  const FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) fail(directory, "expected a checkpoint", errno);
  // O_NONBLOCK: a FIFO would wait for a writer.
  FileDescriptor file(
      ::openat(opened.get(), kScriptFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status = {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) fail(path, expected, errno);
  if (!S_ISREG(status.st_mode)) refuse(path, expected, "it is not a regular file");
  if (!is_trusted) {
    require_own(opened.get(), directory);
    require_own(file.get(), path);
  }
  std::string content(static_cast<std::size_t>(status.st_size), '\0');
  content.resize(InputFile(std::move(file), path, ErrorCategory::checkpoint)
                     .read_at(0, content.data(), content.size()));
  note_file_progress();
  return content;
}

}  // namespace lockstep::inline v0::checkpoint
