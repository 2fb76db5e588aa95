// An index of the records of a file, with four bytes per record.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_file.h"

namespace lockstep::inline v0::data {

/// A nondecreasing sequence of byte positions that starts with 0. Stores their low 32 bits, and the
/// indices at which the high half increases: none for files below 4 GiB, otherwise one per 4 GiB.
class RecordOffsets {
 public:
  std::size_t size() const { return low_.size(); }
  std::uint64_t operator[](std::size_t i) const {
    if (rises_.empty()) return low_[i];
    const auto before = std::upper_bound(rises_.begin(), rises_.end(), i) - rises_.begin();
    return static_cast<std::uint64_t>(before) << 32 | low_[i];
  }
  std::uint64_t back() const { return (*this)[size() - 1]; }
  /// `offset` must be at least back() and below 2^50: each 4 GiB of a gap costs memory.
  void push_back(std::uint64_t offset) {
    for (; rises_.size() < offset >> 32; rises_.push_back(low_.size())) continue;
    low_.push_back(static_cast<std::uint32_t>(offset));
  }
  void reserve(std::size_t count) { low_.reserve(count); }
  void shrink_to_fit() { low_.shrink_to_fit(); }

  bool operator==(const RecordOffsets&) const = default;

 private:
  std::vector<std::uint32_t> low_ = {0};
  // For each increment of the high half, the index of the first offset after it.
  std::vector<std::size_t> rises_;
};

/// The result of one scan of a file's labels.
struct LabelRange {
  std::string feature;  ///< the integer feature that was scanned
  std::int64_t lowest = 0;
  std::int64_t highest = -1;
  bool operator==(const LabelRange&) const = default;
};

/// The positions of a file's records for random access. Record i's header starts at byte
/// `offsets[i]` of the (decompressed) file; `offsets[records()]` is the end of the file.
struct RecordIndex {
  RecordOffsets offsets;
  std::optional<LabelRange> labels;

  std::int64_t records() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::uint64_t length(std::int64_t record) const;  ///< length of the record's data in bytes
  bool operator==(const RecordIndex&) const = default;
};

/// Scans the headers of `file`; of a plain file, only headers are read. Throws RecordError for a
/// damaged header or a file that ends within a record.
RecordIndex build_record_index(const RecordFile& file);

/// Scans the headers up to the first damage, which is returned in `damage`.
RecordIndex build_record_index(const RecordFile& file, std::optional<DamagedFile>& damage);

/// The path of the index of `file`: next to it as FILE.index, or in `index_dir` if given, under a
/// name that also distinguishes files of the same name in different directories.
std::filesystem::path record_index_path(const std::filesystem::path& file,
                                        const std::filesystem::path& index_dir);

/// Loads the index at `path`, if it is intact and was built from this version of the file.
std::optional<RecordIndex> load_record_index(const std::filesystem::path& path,
                                             const FileVersion& version);

/// Saves `index` at `path`. Returns false if it cannot be written, or if `path` is a link or a
/// special file: an index is useful but not required.
bool save_record_index(const std::filesystem::path& path, const FileVersion& version,
                       const RecordIndex& index);

}  // namespace lockstep::inline v0::data
