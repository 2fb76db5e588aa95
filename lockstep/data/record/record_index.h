// Where records begin, in four bytes each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/record/record_file.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// Byte positions that never fall, beginning with 0. Their low halves are kept, and where the high half rises: files
/// below 4 GiB have no such place, and of a larger one there is one for each 4 GiB.
class RecordOffsets {
 public:
  std::size_t size() const { return low_.size(); }
  std::uint64_t operator[](std::size_t i) const {
    if (rises_.empty()) return low_[i];
    const auto before = std::upper_bound(rises_.begin(), rises_.end(), i) - rises_.begin();
    return static_cast<std::uint64_t>(before) << 32 | low_[i];
  }
  std::uint64_t back() const { return (*this)[size() - 1]; }
  /// `offset` is at least back(), and below 2^50: each 4 GiB of a gap costs memory.
  void push_back(std::uint64_t offset) {
    for (; rises_.size() < offset >> 32; rises_.push_back(low_.size())) continue;
    low_.push_back(static_cast<std::uint32_t>(offset));
  }
  void reserve(std::size_t count) { low_.reserve(count); }
  void shrink_to_fit() { low_.shrink_to_fit(); }

  bool operator==(const RecordOffsets&) const = default;

 private:
  std::vector<std::uint32_t> low_ = {0};
  std::vector<std::size_t> rises_;  // the number of each offset from which on the high half is one more
};

// Where the records of a file lie, so that each can be read at once.

/// What one scan of a file's labels found.
struct LabelRange {
  std::string feature;  ///< the integer feature that was scanned
  std::int64_t lowest = 0;
  std::int64_t highest = -1;
  bool operator==(const LabelRange&) const = default;
};

/// Record i's header starts at byte `offsets[i]` of the (inflated) file; `offsets[records()]` is where the file ends.
struct RecordIndex {
  RecordOffsets offsets;
  std::optional<LabelRange> labels;

  std::int64_t records() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::uint64_t length(std::int64_t record) const;  ///< of the record's data, bytes
  bool operator==(const RecordIndex&) const = default;
};

/// Walks over the headers of `file`; of a plain file, nothing but headers is read. Throws RecordError for a damaged
/// header or a file that ends within a record.
RecordIndex build_record_index(const RecordFile& file);

/// The same of the records before such a place, which `damage` then tells.
RecordIndex build_record_index(const RecordFile& file, std::optional<DamagedFile>& damage);

/// Where the index of `file` is kept: beside it as FILE.index, or, where `index_dir` is given, there, under a name that
/// also tells files of one name in different directories apart.
std::filesystem::path record_index_path(const std::filesystem::path& file, const std::filesystem::path& index_dir);

/// The index kept at `path`, if it is whole and was made of a file with this stamp.
std::optional<RecordIndex> load_record_index(const std::filesystem::path& path, const FileStamp& stamp);

/// Keeps `index` at `path`. False where that cannot be written, or is a link or a special file: an index is worth
/// having, not needed.
bool save_record_index(const std::filesystem::path& path, const FileStamp& stamp, const RecordIndex& index);

}  // namespace lockstep::data
