#include "lockstep/checkpoint/torch_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <bit>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"

namespace lockstep::inline v0::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

template <typename Number>
void append(std::string& to, Number number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::string_view bytes_of_values(const TensorView& tensor) {
  return std::visit(
      [](const auto& values) {
        return std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes());
      },
      tensor.values);
}

/// A pickle of protocol 2 (pickletools.py of Python has the operations).
class Pickle {
 public:
  Pickle() : text_("\x80\x02", 2) {}

  /// The pickle of the dictionary. Storage i is the entry "data/i" of the archive.
  static std::string encode(std::span<const TensorView> tensors) {
    Pickle pickle;
    pickle.text_ += "}(";
    for (std::size_t i = 0; i < tensors.size(); ++i) pickle.add(tensors[i], i);
    pickle.text_ += "u.";
    return std::move(pickle.text_);
  }

 private:
  void add(const TensorView& tensor, std::size_t index) {
    add(tensor.name);
    add_global("torch._utils", "_rebuild_tensor_v2");
    text_ += "((";
    add("storage");
    const bool is_float = std::holds_alternative<std::span<const float>>(tensor.values);
    add_global("torch", is_float ? "FloatStorage" : "LongStorage");
    add(std::to_string(index));
    add("cpu");
    const std::int64_t count = model::element_count(tensor.shape);
    add(count);
    text_ += "tQ";  // the storage
    add(0);         // its first element
    text_ += '(';
    for (const std::int64_t extent : tensor.shape) add(extent);
    text_ += "t(";
    std::int64_t stride = count;
    for (const std::int64_t extent : tensor.shape) add(stride /= extent);
    text_ += "t\x89";  // requires no gradient
    add_global("collections", "OrderedDict");
    text_ += ")RtR";
  }
  void add(std::string_view text) {
    text_ += 'X';
    append(text_, static_cast<std::uint32_t>(text.size()));
    text_ += text;
  }
  void add(std::int64_t number) {
    if (number <= std::numeric_limits<std::int32_t>::max()) {
      text_ += 'J';
      append(text_, static_cast<std::int32_t>(number));
    } else {
      text_ += "\x8a\x08";
      append(text_, number);
    }
  }
  void add_global(std::string_view module, std::string_view name) {
    text_ += fmt::format("c{}\n{}\n", module, name);
  }

  std::string text_;
};

/// A zip archive whose entries are stored (PKWARE's APPNOTE.TXT, 4.3).
class StoredArchive {
 public:
  explicit StoredArchive(const std::filesystem::path& path)
      : file_(path, Durability::synced, ErrorCategory::checkpoint) {}

  void add(std::string_view name, std::string_view bytes) {
    std::string common;  // common part of both headers of an entry
    append(common, kVersion);
    for (int field = 0; field < 3; ++field) append(common, std::uint16_t{0});  // flags to time
    append(common, kDate);
    append(common, checksum(bytes));
    for (int copy = 0; copy < 2; ++copy) append(common, as_32_bits(bytes.size()));
    append(common, static_cast<std::uint16_t>(name.size()));

    std::string header = "PK\x03\x04" + common;
    // PyTorch maps arrays into memory: they begin at multiples of 64 bytes.
    const std::uint64_t begin = written_ + header.size() + 2 + name.size() + kExtraHeader;
    const std::uint64_t padding = (kAlignment - begin % kAlignment) % kAlignment;
    append(header, static_cast<std::uint16_t>(kExtraHeader + padding));
    header += name;
    header += "FB";
    append(header, static_cast<std::uint16_t>(padding));
    header.append(padding, 'Z');

    directory_ += std::string("PK\x01\x02\x14\0", 6) + common;
    for (int field = 0; field < 4; ++field) append(directory_, std::uint16_t{0});  // extra to kind
    append(directory_, std::uint32_t{0});
    append(directory_, as_32_bits(written_));
    directory_ += name;
    ++entries_;
    write(header);
    write(bytes);
  }

  /// Writes the directory. Returns the size of the file.
  std::uint64_t commit() {
    std::string end("PK\x05\x06\0\0\0\0", 8);
    for (int copy = 0; copy < 2; ++copy) append(end, entries_);
    append(end, as_32_bits(directory_.size()));
    append(end, as_32_bits(written_));
    append(end, std::uint16_t{0});
    write(directory_);
    write(end);
    as_32_bits(written_);
    file_.commit();
    return written_;
  }

 private:
  static constexpr std::uint16_t kVersion = 20;
  static constexpr std::uint16_t kDate = 0x21;  // 1980-01-01: the same bytes each time
  static constexpr std::uint64_t kAlignment = 64;
  static constexpr std::uint64_t kExtraHeader = 4;

  static std::uint32_t checksum(std::string_view bytes) {
    return static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  }
  std::uint32_t as_32_bits(std::uint64_t bytes) const {
    if (bytes > std::numeric_limits<std::uint32_t>::max())
      throw Error(ErrorCategory::checkpoint, file_.path().string(),
                  "expected less than 4 GiB of weights in a file of torch.save; safetensors has no "
                  "such limit",
                  fmt::format("got {} bytes", bytes));
    return static_cast<std::uint32_t>(bytes);
  }
  void write(std::string_view bytes) {
    file_.write(bytes);
    written_ += bytes.size();
  }

  AtomicFile file_;
  std::uint64_t written_ = 0;
  std::string directory_;
  std::uint16_t entries_ = 0;
};

}  // namespace

std::uint64_t write_torch_file(const std::filesystem::path& path,
                               std::span<const TensorView> tensors) {
  constexpr std::size_t kMaxTensors = 65'000;  // the zip format without extensions has 16 bits
  if (tensors.size() > kMaxTensors)
    throw Error(ErrorCategory::checkpoint, path.string(),
                fmt::format("expected at most {} tensors in a file of torch.save", kMaxTensors),
                fmt::format("got {}", tensors.size()));
  StoredArchive archive(path);
  archive.add("archive/data.pkl", Pickle::encode(tensors));
  archive.add("archive/byteorder", "little");
  for (std::size_t i = 0; i < tensors.size(); ++i)
    archive.add(fmt::format("archive/data/{}", i), bytes_of_values(tensors[i]));
  archive.add("archive/version", "3\n");
  return archive.commit();
}

}  // namespace lockstep::inline v0::checkpoint
