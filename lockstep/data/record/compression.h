// How a record file may be packed: not at all, or as one gzip or zlib stream over the whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/input_file.h"

namespace lockstep::data {

/// Of a file as a whole.
enum class Compression { none, gzip, zlib };

/// "none", "gzip", "zlib".
std::string_view compression_name(Compression compression);
/// The reverse; throws Error (input) for another name.
Compression compression_from_name(std::string_view name);

/// What the first bytes of a TFRecord file say. A plain file is never mistaken for a packed one, not even with a
/// damaged length field, unless its first record is longer than 16 MB.
Compression detect_compression(std::string_view head);

/// Bytes in the order of a file, inflated where it is packed. One thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Up to `count` bytes; fewer only at the end, or where packed data are damaged or end too early: the call after that
  /// throws Error (data).
  virtual std::size_t read(char* into, std::size_t count) = 0;
};

/// `file` from its beginning, which must outlive the source.
std::unique_ptr<ByteSource> open_bytes(const InputFile& file, Compression compression);

/// All bytes of a file, inflated. Throws Error (data), also for more than `limit` bytes: a small packed file can hold a
/// thousand times its size. Without a `limit` it is what the available memory can hold.
std::string read_all(const InputFile& file, Compression compression, std::optional<std::uint64_t> limit = {});

/// The first `count` bytes of a file, inflated; fewer only where it ends. Throws Error (data), also for more than the
/// available memory can hold.
std::string read_up_to(const InputFile& file, Compression compression, std::uint64_t count);

/// The same, or, where the packed data are damaged or end too early, the bytes before that and is_whole false.
struct WholeOrPart {
  std::string bytes;     ///< what came out
  bool is_whole = true;  ///< false where the input was cut off
};
/// Inflates a file from its beginning, as far as it goes. Throws Error (data) for more than `limit` bytes, as
/// read_all().
WholeOrPart read_what_is_whole(const InputFile& file, Compression compression, std::optional<std::uint64_t> limit = {});

/// Packs a stream piece by piece. One thread.
class Deflater {
 public:
  /// `compression` is gzip or zlib.
  explicit Deflater(Compression compression);
  Deflater(Deflater&&) noexcept;
  Deflater& operator=(Deflater&&) noexcept;
  ~Deflater();

  /// Appends to `out` what is ready of the packed form of `bytes`.
  void add(std::string_view bytes, std::string& out);
  /// Appends the rest.
  void finish(std::string& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data
