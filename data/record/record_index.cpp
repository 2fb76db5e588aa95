#include "data/record/record_index.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "data/record/atomic_file.h"
#include "data/record/crc32c.h"
#include "data/record/record_frame.h"

namespace lockstep::data {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr std::size_t kWindowBytes =
    4096;  // several headers at once where records are small, one page where they are large

/// Gives headers from a window over the file, so that small records do not cost a system call each.
class HeaderWindow {
 public:
  explicit HeaderWindow(const RecordFile& file) : file_(file) {}

  /// Up to kRecordHeaderBytes bytes at `offset`.
  std::string_view at(std::uint64_t offset) {
    if (offset < begin_ || offset + kRecordHeaderBytes > begin_ + window_.size()) {
      begin_ = offset;
      window_ = file_.read(offset, kWindowBytes, scratch_);
    }
    return window_.substr(offset - begin_, kRecordHeaderBytes);
  }

 private:
  const RecordFile& file_;
  std::string scratch_;
  std::string_view window_;
  std::uint64_t begin_ = 0;
};

// The file: one line of JSON, the offsets as 64-bit words, CRC-32C of all before it. Little-endian.
std::string to_bytes(const FileStamp& stamp, const RecordIndex& index) {
  Json head = {{"lockstep_index", kVersion},
               {"records", index.records()},
               {"file_size", stamp.size},
               {"file_modified_nanos", stamp.modified_nanos}};
  if (index.labels) {
    head["labels"] = {
        {"feature", index.labels->feature}, {"lowest", index.labels->lowest}, {"highest", index.labels->highest}};
  }
  std::string bytes = head.dump() + '\n';
  bytes.append(reinterpret_cast<const char*>(index.offsets.data()), index.offsets.size() * sizeof(std::uint64_t));
  const std::uint32_t crc = crc32c(bytes);
  bytes.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  return bytes;
}

/// An integer of the head. nlohmann-json would convert other numbers, also those that no integer can hold.
std::int64_t integer_at(const Json& head, const char* name) {
  return head.at(name).get_ref<const Json::number_integer_t&>();
}

std::optional<RecordIndex> from_bytes(std::string_view bytes, const FileStamp& stamp) {
  std::uint32_t crc = 0;
  if (bytes.size() < sizeof(crc)) return std::nullopt;
  std::memcpy(&crc, bytes.data() + bytes.size() - sizeof(crc), sizeof(crc));
  bytes.remove_suffix(sizeof(crc));
  const std::size_t line = bytes.find('\n');
  if (crc != crc32c(bytes) || line == std::string_view::npos) return std::nullopt;

  const Json head = Json::parse(bytes.substr(0, line));
  const FileStamp made_of = {integer_at(head, "file_size"), integer_at(head, "file_modified_nanos")};
  if (head.at("lockstep_index") != kVersion || made_of != stamp) return std::nullopt;

  RecordIndex index;
  bytes.remove_prefix(line + 1);
  const std::size_t offsets = bytes.size() / sizeof(std::uint64_t);
  if (offsets == 0 || bytes.size() % sizeof(std::uint64_t) != 0) return std::nullopt;
  if (integer_at(head, "records") != static_cast<std::int64_t>(offsets) - 1) return std::nullopt;
  index.offsets.resize(offsets);
  std::memcpy(index.offsets.data(), bytes.data(), bytes.size());
  constexpr std::uint64_t kLeast = kRecordHeaderBytes + kRecordFooterBytes;
  if (index.offsets.front() != 0) return std::nullopt;
  for (std::size_t i = 1; i < offsets; ++i)
    if (index.offsets[i] < index.offsets[i - 1] || index.offsets[i] - index.offsets[i - 1] < kLeast)
      return std::nullopt;
  if (const auto labels = head.find("labels"); labels != head.end()) {
    index.labels = LabelRange{labels->at("feature"), integer_at(*labels, "lowest"), integer_at(*labels, "highest")};
  }
  return index;
}

}  // namespace

std::uint64_t RecordIndex::length(std::int64_t record) const {
  const auto i = static_cast<std::size_t>(record);
  return offsets[i + 1] - offsets[i] - kRecordHeaderBytes - kRecordFooterBytes;
}

RecordIndex build_record_index(const RecordFile& file) {
  RecordIndex index;
  HeaderWindow window(file);
  const std::uint64_t size = file.size();
  std::uint64_t offset = 0;
  while (offset < size) {
    const std::string_view header = window.at(offset);
    const auto location = [&] { return file.location(index.records(), offset); };
    if (header.size() < kRecordHeaderBytes) throw_truncated_length(location(), header.size());
    if (!header_intact(header)) throw_length_crc(location());
    const std::uint64_t length = record_length(header);
    const std::uint64_t left = size - offset - kRecordHeaderBytes;
    if (left < kRecordFooterBytes || length > left - kRecordFooterBytes) throw_truncated_data(location(), length, left);
    offset += kRecordHeaderBytes + length + kRecordFooterBytes;
    index.offsets.push_back(offset);
  }
  return index;
}

std::filesystem::path record_index_path(const std::filesystem::path& file, const std::filesystem::path& index_dir) {
  if (index_dir.empty()) return file.string() + ".index";
  const std::string absolute = std::filesystem::absolute(file).lexically_normal().string();
  const std::uint64_t hash = XXH3_64bits(absolute.data(), absolute.size());
  return index_dir / fmt::format("{}.{:016x}.index", file.filename().string(), hash);
}

std::optional<RecordIndex> load_record_index(const std::filesystem::path& path, const FileStamp& stamp) {
  if (std::error_code error; !std::filesystem::is_regular_file(path, error)) return std::nullopt;
  try {
    return from_bytes(read_all(InputFile(path), Compression::none), stamp);
  } catch (const Error&) {
    return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

bool save_record_index(const std::filesystem::path& path, const FileStamp& stamp, const RecordIndex& index) {
  try {
    if (path.has_parent_path()) {
      std::error_code ignored;
      std::filesystem::create_directories(path.parent_path(), ignored);
    }
    write_file_atomically(path, to_bytes(stamp, index), Durability::cached);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace lockstep::data
