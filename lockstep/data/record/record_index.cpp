#include "lockstep/data/record/record_index.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/data/record/record_frame.h"

namespace lockstep::inline v0::data {
namespace {

using nlohmann::json;

constexpr int kIndexVersion = 1;
constexpr std::size_t kMaxHeadBytes = std::size_t{1} << 14;
constexpr std::size_t kPieceWords = std::size_t{1} << 16;
constexpr std::size_t kPieceBytes = kPieceWords * sizeof(std::uint64_t);
constexpr std::size_t kScanBytes =
    4096;  // several headers of small records, one page for large records

/// Reads headers through a window over the file, so that small records do not cost one system call
/// each.
class HeaderWindow {
 public:
  explicit HeaderWindow(const RecordFile& file) : file_(file) {}

  /// Up to kRecordHeaderBytes bytes at `offset`.
  std::string_view at(std::uint64_t offset) { return ahead(offset).substr(0, kRecordHeaderBytes); }

  /// All bytes of the window from `offset`, at least those of at().
  std::string_view ahead(std::uint64_t offset) {
    if (offset < begin_ || offset + kRecordHeaderBytes > begin_ + window_.size()) {
      begin_ = offset;
      window_ = file_.read(offset, kScanBytes, scratch_);
    }
    return window_.substr(offset - begin_);
  }

 private:
  const RecordFile& file_;
  std::string scratch_;
  std::string_view window_;
  std::uint64_t begin_ = 0;
};

// The file: one line of JSON, the offsets as 64-bit words, then a CRC-32C of everything before.
// Little-endian.
std::string head_of(const FileVersion& version, const RecordIndex& index) {
  json head = {
      {"lockstep_index", kIndexVersion}, {"records", index.records()},
      {"file_size", version.stamp.size}, {"file_modified_nanos", version.stamp.modified_nanos},
      {"file_inode", version.inode},     {"file_ends_hash", version.ends_hash}};
  if (index.labels) {
    head["labels"] = {{"feature", index.labels->feature},
                      {"lowest", index.labels->lowest},
                      {"highest", index.labels->highest}};
  }
  return dump_json(head) + '\n';
}

/// Calls use(words) for all offsets in order, in pieces, since a large file has many.
template <typename Use>
void for_pieces(const RecordOffsets& offsets, Use use) {
  std::vector<std::uint64_t> words;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    words.push_back(offsets[i]);
    if (words.size() < kPieceWords && i + 1 < offsets.size()) continue;
    use(std::string_view(reinterpret_cast<const char*>(words.data()),
                         words.size() * sizeof(std::uint64_t)));
    words.clear();
  }
}

void write_index(AtomicFile& file, const FileVersion& version, const RecordIndex& index) {
  std::string piece = head_of(version, index);
  std::uint32_t crc = crc32c(piece);
  for_pieces(index.offsets, [&](std::string_view words) {
    crc = crc32c(words, crc);
    piece += words;
    file.write(piece);
    piece.clear();
  });
  file.write({reinterpret_cast<const char*>(&crc), sizeof(crc)});
}

/// An integer of the header. nlohmann-json would convert other numbers, even those that no integer
/// can represent.
std::int64_t integer_at(const json& head, const char* name) {
  return head.at(name).get_ref<const json::number_integer_t&>();
}

/// An unsigned 64-bit integer of the header.
std::uint64_t unsigned_at(const json& head, const char* name) {
  return head.at(name).get_ref<const json::number_unsigned_t&>();
}

/// Whether the index was built from this version of the file.
bool is_of(const json& head, const FileVersion& version) {
  const FileStamp stamp = {integer_at(head, "file_size"), integer_at(head, "file_modified_nanos")};
  return FileVersion{stamp, unsigned_at(head, "file_inode"), unsigned_at(head, "file_ends_hash")} ==
         version;
}

/// The contents of the first line, and its length; nullopt if it belongs to another file.
struct Head {
  json fields;
  std::size_t bytes = 0;
};

std::optional<Head> read_head(std::string_view bytes, const FileVersion& version) {
  const std::size_t line = bytes.find('\n');
  if (line == std::string_view::npos) return std::nullopt;
  Head head{parse_json(bytes.substr(0, line), ErrorCategory::data, "index"), line + 1};
  if (head.fields.at("lockstep_index") != kIndexVersion || !is_of(head.fields, version))
    return std::nullopt;
  return head;
}

/// Adds the words, the first of which must be 0; false if they cannot be record offsets.
bool add_offsets(std::string_view words, bool is_first, RecordOffsets& offsets) {
  constexpr std::uint64_t kLeast = kRecordHeaderBytes + kRecordFooterBytes;
  constexpr std::uint64_t kMaxOffset = std::uint64_t{1} << 50;  // no file is as large as a petabyte
  std::uint64_t before = offsets.back();
  for (; !words.empty(); words.remove_prefix(sizeof(std::uint64_t))) {
    std::uint64_t offset = 0;
    std::memcpy(&offset, words.data(), sizeof(offset));
    if (std::exchange(is_first, false)) {
      if (offset != 0) return false;
      continue;
    }
    if (offset < before || offset - before < kLeast || offset - before > kLeast + kMaxRecordBytes ||
        offset > kMaxOffset)
      return false;
    offsets.push_back(offset);
    before = offset;
  }
  return true;
}

/// The offsets in `file` from `begin`, followed by the CRC of everything before; `crc` is the CRC
/// up to `begin`.
bool read_offsets(const InputFile& file, std::uint64_t begin, std::uint64_t end, std::uint32_t crc,
                  RecordOffsets& offsets) {
  std::string piece(std::min<std::uint64_t>(kPieceBytes, end - begin), '\0');
  for (std::uint64_t at = begin; at < end;) {
    const std::size_t count = std::min<std::uint64_t>(piece.size(), end - at);
    if (file.read_at(at, piece.data(), count) != count) return false;
    const std::string_view words(piece.data(), count);
    crc = crc32c(words, crc);
    if (!add_offsets(words, at == begin, offsets)) return false;
    at += count;
  }
  std::uint32_t stored = 0;
  return file.read_at(end, reinterpret_cast<char*>(&stored), sizeof(stored)) == sizeof(stored) &&
         stored == crc;
}

std::optional<RecordIndex> read_index(const InputFile& file, const FileVersion& version) {
  const auto size = static_cast<std::uint64_t>(file.stamp().size);
  std::string piece(std::min<std::uint64_t>(size, kMaxHeadBytes), '\0');
  piece.resize(file.read_at(0, piece.data(), piece.size()));
  const auto head = read_head(piece, version);
  if (!head) return std::nullopt;
  const std::int64_t records = integer_at(head->fields, "records");
  const std::uint64_t words = records < 0 ? 0 : static_cast<std::uint64_t>(records) + 1;
  const std::uint64_t rest = size - head->bytes;
  constexpr std::size_t kCrcBytes = sizeof(std::uint32_t);
  if (words == 0 || words > size || rest != words * sizeof(std::uint64_t) + kCrcBytes)
    return std::nullopt;

  RecordIndex index;
  index.offsets.reserve(words);
  const std::uint32_t crc = crc32c(std::string_view(piece).substr(0, head->bytes));
  if (!read_offsets(file, head->bytes, size - kCrcBytes, crc, index.offsets)) return std::nullopt;
  if (const auto labels = head->fields.find("labels"); labels != head->fields.end()) {
    index.labels = LabelRange{labels->at("feature"), integer_at(*labels, "lowest"),
                              integer_at(*labels, "highest")};
    if (index.labels->highest < -1 ||
        index.labels->highest >= std::numeric_limits<std::int32_t>::max())
      return std::nullopt;
  }
  return index;
}

}  // namespace

std::uint64_t RecordIndex::length(std::int64_t record) const {
  const auto i = static_cast<std::size_t>(record);
  return offsets[i + 1] - offsets[i] - kRecordHeaderBytes - kRecordFooterBytes;
}

namespace {

/// Adds the records of `file` to `index`, which also contains all records before the damage if this
/// throws.
void scan_headers(const RecordFile& file, RecordIndex& index) {
  HeaderWindow window(file);
  const std::uint64_t size = file.size();
  std::uint64_t offset = 0;
  while (offset < size) {
    const std::string_view header = window.at(offset);
    const auto location = [&] { return file.location(index.records(), offset); };
    if (header.size() < kRecordHeaderBytes) throw_truncated_length(location(), header.size());
    if (!header_intact(header)) throw_length_crc(location(), window.ahead(offset));
    const std::uint64_t length = record_length(header);
    const std::uint64_t left = size - offset - kRecordHeaderBytes;
    if (left < kRecordFooterBytes || length > left - kRecordFooterBytes)
      throw_truncated_data(location(), length, left);
    if (length > kMaxRecordBytes) throw_too_long(location(), length);
    offset += kRecordHeaderBytes + length + kRecordFooterBytes;
    index.offsets.push_back(offset);
  }
}

}  // namespace

RecordIndex build_record_index(const RecordFile& file) {
  RecordIndex index;
  scan_headers(file, index);
  index.offsets.shrink_to_fit();
  return index;
}

RecordIndex build_record_index(const RecordFile& file, std::optional<DamagedFile>& damage) {
  RecordIndex index;
  std::string_view kind;
  try {
    scan_headers(file, index);
  } catch (const RecordError& error) {
    kind = fault_name(error.fault());
  }
  index.offsets.shrink_to_fit();
  const std::uint64_t end = index.offsets.back();
  const auto left_out = static_cast<std::int64_t>(file.size() - end);
  if (file.is_cut())
    damage = {file.location(index.records(), end),
              fmt::format("{} stream", kNamesOf<Compression>.name(file.compression())), left_out};
  else if (!kind.empty())
    damage = {file.location(index.records(), end), std::string(kind), left_out};
  return index;
}

std::filesystem::path record_index_path(const std::filesystem::path& file,
                                        const std::filesystem::path& index_dir) {
  if (index_dir.empty()) return file.string() + ".index";
  const std::string absolute = std::filesystem::absolute(file).lexically_normal().string();
  const std::uint64_t hash = XXH3_64bits(absolute.data(), absolute.size());
  return index_dir / fmt::format("{}.{:016x}.index", file.filename().string(), hash);
}

std::optional<RecordIndex> load_record_index(const std::filesystem::path& path,
                                             const FileVersion& version) {
  if (std::error_code error; !std::filesystem::is_regular_file(path, error)) return std::nullopt;
  try {
    return read_index(InputFile(path), version);
  } catch (const Error&) {
    return std::nullopt;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

bool save_record_index(const std::filesystem::path& path, const FileVersion& version,
                       const RecordIndex& index) {
  try {
    if (path.has_parent_path()) {
      std::error_code ignored;
      std::filesystem::create_directories(path.parent_path(), ignored);
    }
    // Another user may have created a link or a FIFO with this name next to the data.
    AtomicFile file(path, Durability::cached, ErrorCategory::data, Existing::regular_only);
    write_index(file, version, index);
    file.commit();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace lockstep::inline v0::data
