// Where the records of a file lie, so that each can be read at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/record/damaged_file.h"
#include "data/record/record_file.h"
#include "data/record/record_offsets.h"

namespace lockstep::data {

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
