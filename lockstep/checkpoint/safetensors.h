// The safetensors format: u64 N | N bytes of JSON with name, type, shape and offsets of every
// tensor | the data of the tensors, row-major, little-endian, without gaps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/file/input_file.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::checkpoint {

/// A tensor to write; does not own its memory.
struct TensorView {
  std::string name;    ///< key in the file
  model::Shape shape;  ///< row-major; empty for a scalar
  std::variant<std::span<const float>, std::span<const std::int64_t>> values;  ///< "F32", "I64"
};

/// The format's `__metadata__`: strings by name.
using TensorMetadata = std::map<std::string, std::string>;

/// Streams `tensors` to a new file, which appears complete or not at all. The bytes of the file do
/// not depend on the order of `tensors`. Returns its size and checksum. Throws Error (checkpoint)
/// with the path if it cannot be written.
FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const TensorMetadata& metadata = {},
                             Destination destination = Destination::synced);

/// A file opened for reading. The header is fully validated: its length, JSON, duplicate names,
/// types, shapes, and that the tensors cover the rest of the file without gap or overlap. Any
/// violation is an Error (checkpoint).
class SafetensorsFile {
 public:
  /// A tensor of the file.
  struct Entry {
    std::string name;          ///< name of the tensor
    std::string type;          ///< "F32", "I64", "BF16" …
    model::Shape shape;        ///< row-major
    std::uint64_t offset = 0;  ///< position of its first byte in the file
    std::uint64_t bytes = 0;   ///< size of its data
  };

  /// Opens the file and reads its header. Throws Error (checkpoint) if it is not a valid
  /// safetensors file.
  explicit SafetensorsFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return file_.path(); }  ///< path of the file
  std::span<const Entry> tensors() const { return tensors_; }         ///< in the order of the file
  const Entry* find(std::string_view name) const;                     ///< nullptr if absent
  /// The metadata of the file.
  const TensorMetadata& metadata() const { return metadata_; }

  /// Reads a tensor of type "F32". Throws Error (checkpoint) if the type or the number of elements
  /// does not match, or if reading fails.
  void read(const Entry& entry, std::span<float> into) const;
  /// As above, for type "I64".
  void read(const Entry& entry, std::span<std::int64_t> into) const;
  /// As above, for types "F32", "BF16", "F16" and "F64"; float64 is rounded to the nearest float32.
  void read_widened(const Entry& entry, std::span<float> into) const;

 private:
  template <typename Half>
  void read_half(const Entry& entry, std::string_view type, std::span<float> into) const;
  void read_bytes(const Entry& entry, std::string_view type, std::span<std::byte> into) const;

  InputFile file_;
  std::vector<Entry> tensors_;
  TensorMetadata metadata_;
};

}  // namespace lockstep::inline v0::checkpoint
