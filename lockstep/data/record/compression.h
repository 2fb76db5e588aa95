// Compression of record files: none, or one gzip or zlib stream over the whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/file/input_file.h"

namespace lockstep::inline v0::data {

/// Applies to a file as a whole.
enum class Compression { none, gzip, zlib };

/// Detects the compression from the first bytes of a TFRecord file. A plain file is never mistaken
/// for a compressed one, even with a damaged length field, unless its first record is longer than
/// 16 MB.
Compression detect_compression(std::string_view head);

/// The bytes of a file in order, decompressed if necessary. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads up to `count` bytes; fewer only at the end, or if compressed data is damaged or
  /// truncated: the next call then throws Error (data).
  virtual std::size_t read(char* into, std::size_t count) = 0;
};

/// Opens `file` at its beginning; `file` must outlive the source.
std::unique_ptr<ByteSource> open_bytes(const InputFile& file, Compression compression);

/// All bytes of a file, decompressed. Throws Error (data) on failure or for more than `limit`
/// bytes: a small compressed file can expand a thousandfold. The default limit depends on the
/// available memory.
std::string read_all(const InputFile& file, Compression compression,
                     std::optional<std::uint64_t> limit = {});

/// The first `count` bytes of a file, decompressed; fewer only if it ends earlier. Throws Error
/// (data) on failure and for more bytes than fit in the available memory.
std::string read_up_to(const InputFile& file, Compression compression, std::uint64_t count);

/// The decompressed bytes of a file, possibly incomplete.
struct DecompressedFile {
  std::string bytes;     ///< the decompressed bytes
  bool is_whole = true;  ///< false if the compressed data is damaged or truncated after `bytes`
};
/// Decompresses a file from its beginning, as far as it is intact. Throws Error (data) for more
/// than `limit` bytes, as read_all().
DecompressedFile read_intact_part(const InputFile& file, Compression compression,
                                  std::optional<std::uint64_t> limit = {});

/// Compresses a stream piece by piece. Not thread-safe.
class Deflater {
 public:
  /// `compression` is gzip or zlib.
  explicit Deflater(Compression compression);
  Deflater(Deflater&&) noexcept;
  Deflater& operator=(Deflater&&) noexcept;
  ~Deflater();

  /// Compresses `bytes` and appends the available output to `out`.
  void add(std::string_view bytes, std::string& out);
  /// Appends the remaining output.
  void finish(std::string& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::inline v0::data

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<data::Compression> =
    enum_names<data::Compression>({{data::Compression::none, "none"},
                                   {data::Compression::gzip, "gzip"},
                                   {data::Compression::zlib, "zlib"}});

}  // namespace lockstep::inline v0
