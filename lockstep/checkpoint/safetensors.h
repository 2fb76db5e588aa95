// The safetensors format: u64 N | N bytes of JSON, which name, type, shape and place every tensor | the tensors' bytes,
// row-major, little-endian, without gaps. Readable by every framework that knows the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/input_file.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/model/shape.h"

namespace lockstep::checkpoint {

/// A tensor to be written; its memory is the caller's.
struct TensorView {
  std::string name;                                                            ///< under which it lies in the file
  model::Shape shape;                                                          ///< row-major; empty for a scalar
  std::variant<std::span<const float>, std::span<const std::int64_t>> values;  ///< "F32", "I64"
};

/// Free text beside the tensors, the format's `__metadata__`.
using TensorMetadata = std::map<std::string, std::string>;

/// Streams `tensors` to a new file, which appears complete or not at all; the same tensors give the same bytes whatever
/// their order here. Returns its size and checksum. Throws Error (checkpoint) with the path where it cannot be written.
FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const TensorMetadata& metadata = {}, Destination destination = Destination::synced);

/// A file opened for reading. The header is checked in full: its length, JSON, duplicate names, types, shapes, and that
/// the tensors cover the rest of the file without gap or overlap. Everything wrong is Error (checkpoint) `[file]
/// needed; given`.
class SafetensorsFile {
 public:
  /// A tensor of the file.
  struct Entry {
    std::string name;          ///< its name
    std::string type;          ///< "F32", "I64", "BF16" …
    model::Shape shape;        ///< row-major
    std::uint64_t offset = 0;  ///< of its first byte in the file
    std::uint64_t bytes = 0;   ///< of its data
  };

  /// Opens it and reads its table. Throws Error (checkpoint) where it is none, or damaged.
  explicit SafetensorsFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return file_.path(); }  ///< as it was opened
  std::span<const Entry> tensors() const { return tensors_; }         ///< in the order of the file
  const Entry* find(std::string_view name) const;                     ///< nullptr if absent
  /// The words that the file carries beside its tensors.
  const TensorMetadata& metadata() const { return metadata_; }

  /// Copies a tensor out. Throws Error (checkpoint) where the type is another, `into` has another number of elements,
  /// or the file fails.
  void read(const Entry& entry, std::span<float> into) const;
  /// Reads a tensor of int64, of as many elements. Throws Error (checkpoint).
  void read(const Entry& entry, std::span<std::int64_t> into) const;
  /// The same for "F32", and for "BF16" and "F16", whose values are exact in float32.
  void read_widened(const Entry& entry, std::span<float> into) const;

 private:
  template <typename Half>
  void read_half(const Entry& entry, std::string_view type, std::span<float> into) const;
  void read_bytes(const Entry& entry, std::string_view type, std::span<std::byte> into) const;

  InputFile file_;
  std::vector<Entry> tensors_;
  TensorMetadata metadata_;
};

}  // namespace lockstep::checkpoint
