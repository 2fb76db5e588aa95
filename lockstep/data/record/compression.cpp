#include "lockstep/data/record/compression.h"

#include <fmt/format.h>
#include <isa-l/igzip_lib.h>
#include <zlib.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/data/record/record_frame.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::size_t kInputBytes = std::size_t{1} << 17;
constexpr std::size_t kOutputBytes = std::size_t{1} << 16;
constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

bool has_gzip_magic(std::string_view head) { return head.starts_with("\x1f\x8b\x08"); }

bool has_zlib_header(std::string_view head) {
  if (head.size() < 8) return false;
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned>(static_cast<unsigned char>(head[i]));
  };
  const bool header =
      (byte(0) & 0x0f) == 8 && (byte(0) >> 4) <= 7 && (byte(0) * 256 + byte(1)) % 31 == 0;
  // In a plain file, bytes 3..7 are the high part of the first record's length, zero below 16 MB.
  // No deflate stream has zeros there: a stored block contains its length and the complement, and
  // no Huffman block starts with that many zeros.
  return header && head.substr(3, 5) != std::string_view("\0\0\0\0\0", 5);
}

class PlainBytes final : public ByteSource {
 public:
  explicit PlainBytes(const InputFile& file) : file_(file) {}

  std::size_t read(char* into, std::size_t count) override {
    const std::size_t got = file_.read_at(offset_, into, count);
    offset_ += got;
    return got;
  }

 private:
  const InputFile& file_;
  std::uint64_t offset_ = 0;
};

/// ISA-L's inflate, several times as fast as zlib's.
class InflatedBytes final : public ByteSource {
 public:
  InflatedBytes(const InputFile& file, Compression compression)
      : file_(file), compression_(compression), input_(kInputBytes) {
    begin_stream();
    state_.next_in = nullptr;
    state_.avail_in = 0;
  }

  std::size_t read(char* into, std::size_t count) override {
    std::size_t done = 0;
    while (done < count && !failure_) {
      if (state_.avail_in == 0) fill();
      if (state_.block_state == ISAL_BLOCK_FINISH) {
        if (compression_ == Compression::gzip) skip_zeros();
        if (state_.avail_in == 0) break;
        begin_stream();  // gzip files may be concatenated
      }
      done += inflate_into(into + done, count - done);
    }
    if (done == 0 && failure_) throw Error(*failure_);
    return done;
  }

 private:
  void begin_stream() {
    std::uint8_t* const next = state_.next_in;
    const std::uint32_t available = state_.avail_in;
    isal_inflate_init(&state_);
    state_.next_in = next;
    state_.avail_in = available;
    state_.crc_flag = compression_ == Compression::gzip ? ISAL_GZIP : ISAL_ZLIB;
  }

  void fill() {
    const std::size_t got =
        file_.read_at(offset_, reinterpret_cast<char*>(input_.data()), input_.size());
    offset_ += got;
    input_ended_ = got < input_.size();
    state_.next_in = input_.data();
    state_.avail_in = static_cast<std::uint32_t>(got);
  }

  /// Skips the zeros with which some programs fill the last block, as gzip does.
  void skip_zeros() {
    while (state_.avail_in > 0 && *state_.next_in == 0) {
      ++state_.next_in;
      --state_.avail_in;
      if (state_.avail_in == 0 && !input_ended_) fill();
    }
  }

  std::size_t inflate_into(char* into, std::size_t count) {
    const auto capacity = static_cast<std::uint32_t>(std::min<std::size_t>(count, 1u << 30));
    state_.next_out = reinterpret_cast<std::uint8_t*>(into);
    state_.avail_out = capacity;
    const std::uint32_t available = state_.avail_in;
    const int result = isal_inflate(&state_);
    if (result != ISAL_DECOMP_OK && result != ISAL_END_INPUT && result != ISAL_OUT_OVERFLOW)
      fail(fmt::format("damaged {} data before byte {}", kNamesOf<Compression>.name(compression_),
                       offset_));
    const std::size_t made = capacity - state_.avail_out;
    const bool is_stuck =
        made == 0 && state_.avail_in == available && state_.block_state != ISAL_BLOCK_FINISH;
    if (!failure_ && is_stuck && input_ended_)
      fail(fmt::format("truncated: the file ends at byte {}", offset_));
    return made;
  }

  /// Output produced before the failure is returned first.
  void fail(const std::string& problem) {
    failure_.emplace(
        ErrorCategory::data, file_.path().string(),
        fmt::format("expected a complete {} stream", kNamesOf<Compression>.name(compression_)),
        problem);
  }

  const InputFile& file_;
  Compression compression_;
  std::vector<std::uint8_t> input_;
  std::uint64_t offset_ = 0;
  bool input_ended_ = false;
  std::optional<Error> failure_;
  inflate_state state_ = {};
};

/// An estimate, so that large files do not grow in many steps: a gzip file ends with its
/// decompressed size, if it is one stream below 4 GB.
std::size_t expected_size(const InputFile& file, Compression compression) {
  // a damaged size must not cost memory; a larger correct size is reached by growing
  constexpr std::size_t kLikelyRatio = 16;
  const auto size = static_cast<std::size_t>(file_stamp(file.path()).size);
  std::uint32_t inflated = 0;
  if (compression != Compression::gzip || size < sizeof(inflated)) return size;
  file.read_at(size - sizeof(inflated), reinterpret_cast<char*>(&inflated), sizeof(inflated));
  return std::min<std::size_t>(inflated, size * kLikelyRatio);
}

}  // namespace

Compression detect_compression(std::string_view head) {
  if (header_intact(head)) return Compression::none;
  if (has_gzip_magic(head)) return Compression::gzip;
  return has_zlib_header(head) ? Compression::zlib : Compression::none;
}

std::unique_ptr<ByteSource> open_bytes(const InputFile& file, Compression compression) {
  if (compression == Compression::none) return std::make_unique<PlainBytes>(file);
  return std::make_unique<InflatedBytes>(file, compression);
}

namespace {

/// More data than memory can hold. This is not damage: the data before it must not count as the
/// whole file.
class TooLarge final : public Error {
 public:
  TooLarge(const InputFile& file, Compression compression, std::uint64_t limit)
      : Error(ErrorCategory::data, file.path().string(),
              fmt::format("expected at most {} bytes {}, the limit of the available memory", limit,
                          compression == Compression::none ? "in the file" : "after decompression"),
              compression == Compression::none
                  ? "got more; split the file, or free memory"
                  : fmt::format("got more from {} bytes of {} data; decompress the file on disk, "
                                "split it, or free memory",
                                file.stamp().size, kNamesOf<Compression>.name(compression))) {}
};

/// The maximum size in append_all(). A growing string exists twice, and its capacity doubles; a
/// string of known size does not grow.
std::uint64_t memory_limit(const InputFile& file, Compression compression) {
  const auto available = static_cast<std::uint64_t>(available_host_memory());
  if (compression == Compression::none) return available;
  return std::max<std::uint64_t>(
      available / 3, std::min<std::uint64_t>(expected_size(file, compression), available));
}

void resize(std::string& bytes, std::size_t size, const InputFile& file, Compression compression) {
  const std::size_t before = bytes.size();
  try {
    bytes.resize(size);
  } catch (const std::exception&) {  // bad_alloc under a process limit, or length_error
    throw TooLarge(file, compression, before);
  }
}

/// Appends up to `count` bytes from `source` to `bytes`, which also contains all received data if
/// this throws.
void append_all(ByteSource& source, const InputFile& file, Compression compression,
                std::uint64_t count, std::uint64_t limit, std::string& bytes) {
  std::size_t step =
      expected_size(file, compression) + 1;  // one more, so that the first step detects the end
  while (bytes.size() < count) {
    const std::size_t done = bytes.size();
    if (done > limit) throw TooLarge(file, compression, limit);
    const std::uint64_t end = std::min(count, limit < count ? limit + 1 : limit);
    step = std::min<std::uint64_t>(step, end - done);
    resize(bytes, done + step, file, compression);
    std::size_t got = 0;
    try {
      got = source.read(bytes.data() + done, step);
    } catch (...) {
      bytes.resize(done);
      throw;
    }
    bytes.resize(done + got);
    if (got == 0) return;
    // Usually only the end remains, which fits in the capacity.
    step = bytes.capacity() > bytes.size() ? bytes.capacity() - bytes.size()
                                           : std::max(kOutputBytes, bytes.size() / 2);
  }
}

}  // namespace

std::string read_up_to(const InputFile& file, Compression compression, std::uint64_t count) {
  std::string bytes;
  append_all(*open_bytes(file, compression), file, compression, count,
             memory_limit(file, compression), bytes);
  return bytes;
}

std::string read_all(const InputFile& file, Compression compression,
                     std::optional<std::uint64_t> limit) {
  std::string bytes;
  append_all(*open_bytes(file, compression), file, compression, kAll,
             limit.value_or(memory_limit(file, compression)), bytes);
  return bytes;
}

DecompressedFile read_intact_part(const InputFile& file, Compression compression,
                                  std::optional<std::uint64_t> limit) {
  DecompressedFile result;
  try {
    append_all(*open_bytes(file, compression), file, compression, kAll,
               limit.value_or(memory_limit(file, compression)), result.bytes);
  } catch (const TooLarge&) {
    throw;
  } catch (const Error&) {
    result.is_whole = false;
  }
  return result;
}

struct Deflater::State {
  z_stream stream = {};
};

Deflater::Deflater(Compression compression) : state_(std::make_unique<State>()) {
  constexpr int kWindowBits = 15;
  const int window = compression == Compression::gzip ? kWindowBits + 16 : kWindowBits;
  constexpr int kMemoryLevel = 8;
  const int result = deflateInit2(&state_->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window,
                                  kMemoryLevel, Z_DEFAULT_STRATEGY);
  LOCKSTEP_CHECK_OP(result, ==, Z_OK);
}

Deflater::Deflater(Deflater&&) noexcept = default;

Deflater& Deflater::operator=(Deflater&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Deflater::~Deflater() {
  if (state_) deflateEnd(&state_->stream);
}

namespace {

void deflate_into(z_stream& stream, std::string_view bytes, int flush, std::string& out) {
  char buffer[kOutputBytes];
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  do {
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = kOutputBytes;
    const int result = deflate(&stream, flush);
    LOCKSTEP_CHECK_OP(result, !=, Z_STREAM_ERROR);
    out.append(buffer, kOutputBytes - stream.avail_out);
  } while (stream.avail_out == 0);
}

}  // namespace

void Deflater::add(std::string_view bytes, std::string& out) {
  constexpr std::size_t kLongestCall = std::size_t{1} << 30;  // zlib sizes are 32 bits
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kLongestCall))) {
    deflate_into(state_->stream, bytes.substr(0, kLongestCall), Z_NO_FLUSH, out);
  }
}

void Deflater::finish(std::string& out) { deflate_into(state_->stream, {}, Z_FINISH, out); }

}  // namespace lockstep::inline v0::data
