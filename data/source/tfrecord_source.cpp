#include "data/source/tfrecord_source.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "data/source/tfrecord_schema.h"
#include "device/error.h"

namespace lockstep::data {
namespace {

/// Half of the usual limit of open files per process.
constexpr std::size_t kFilesKeptOpen = 512;
/// Files of so many bytes together are mapped. What a mapping touched counts as memory of the process, so a larger data
/// set is read by pread: nothing is lost, for a page that is touched for the first time costs as much.
constexpr std::uint64_t kMostMappedBytes = std::uint64_t{1} << 30;

std::vector<std::string> glob_names(const std::string& pattern) {
  glob_t found = {};
  const int result = ::glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE | GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> names;
  if (result == 0) names.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return names;
}

bool is_record_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.extension() != ".index" && path.extension() != ".json" && !std::filesystem::is_directory(path, ignored);
}

}  // namespace

std::vector<std::filesystem::path> matching_files(const std::vector<std::string>& patterns) {
  std::vector<std::filesystem::path> files;
  for (const std::string& pattern : patterns) {
    const std::size_t before = files.size();
    for (const std::string& name : glob_names(pattern)) {
      if (is_record_file(name)) files.emplace_back(name);
    }
    if (files.size() == before) {
      throw Error(ErrorCategory::data, pattern, "needed TFRecord files that match this pattern", "there are none");
    }
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.native() < b.native(); });
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

TFRecordSource::TFRecordSource(const std::vector<std::filesystem::path>& files, const TFRecordOptions& options,
                               std::string description)
    : index_dir_(options.index_dir), description_(std::move(description)) {
  LOCKSTEP_CHECK_OP(files.size(), >, 0u);
  open_files(files);
  find_decoder(options);
  keep_indexes();
}

void TFRecordSource::open_files(const std::vector<std::filesystem::path>& files) {
  std::int64_t records = 0;
  for (const auto& path : files) {
    RecordFile file(path);
    auto kept = load_record_index(record_index_path(path, index_dir_), file.stamp());
    const bool is_kept = kept.has_value();
    RecordIndex index = is_kept ? *std::move(kept) : build_record_index(file);
    const std::int64_t first_record = std::exchange(records, records + index.records());
    shards_.push_back({path, std::nullopt, file.stamp(), std::move(index), is_kept, first_record});
    if (file.compression() != Compression::none || shards_.size() <= kFilesKeptOpen)
      shards_.back().file = std::move(file);
  }
  map_files();
  if (records == 0) {
    throw Error(
        ErrorCategory::data, files.front().string(), "needed at least one record",
        files.size() == 1 ? "the file is empty" : fmt::format("it and {} more files are empty", files.size() - 1));
  }
}

void TFRecordSource::map_files() {
  std::uint64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += static_cast<std::uint64_t>(shard.stamp.size);
  if (bytes > kMostMappedBytes || shards_.size() > kFilesKeptOpen) return;
  for (Shard& shard : shards_) shard.file->map();
}

template <typename Use>
void TFRecordSource::with_file(const Shard& shard, Use use) {
  if (shard.file) {
    use(*shard.file);
  } else {
    use(RecordFile(shard.path));
  }
}

template <typename Use>
void TFRecordSource::with_record(const Shard& shard, std::int64_t record, Use use) {
  with_file(shard, [&](const RecordFile& file) {
    const bool was_mapped = file.is_mapped();
    use(file, record_of(shard, file, record));
    if (was_mapped && !file.is_mapped()) use(file, record_of(shard, file, record));
  });
}

std::string_view TFRecordSource::record_of(const Shard& shard, const RecordFile& file, std::int64_t record) {
  thread_local ReadWindow window;
  const std::uint64_t offset = shard.index.offsets[static_cast<std::size_t>(record)];
  return file.record(record, offset, shard.index.length(record), window);
}

void TFRecordSource::find_decoder(const TFRecordOptions& options) {
  std::vector<std::filesystem::path> paths;
  for (const Shard& shard : shards_) paths.push_back(shard.path);
  const auto described = find_description(paths);
  const auto first =
      std::find_if(shards_.begin(), shards_.end(), [](const Shard& shard) { return shard.index.records() > 0; });
  RecordSchema schema;
  with_record(*first, 0, [&](const RecordFile& file, std::string_view record) {
    schema = find_schema(options, described, record, file.location(0, 0).text());
  });
  if (schema.spec.classes == 0 && schema.spec.targets == 0) schema.spec.classes = count_classes(schema.label_feature);
  decoder_.emplace(schema.spec, schema.input, schema.input_feature, schema.label_feature);
}

std::int64_t TFRecordSource::count_classes(const std::string& label_feature) {
  std::int64_t highest = -1;
  for (Shard& shard : shards_) {
    if (!shard.index.labels || shard.index.labels->feature != label_feature) {
      shard.index.labels = scan_labels(shard, label_feature);
      shard.index_kept = false;
    }
    highest = std::max(highest, shard.index.labels->highest);
  }
  return highest + 1;
}

/// Once, when all is known: replacing a file just written makes some file systems wait for the disk.
void TFRecordSource::keep_indexes() {
  for (Shard& shard : shards_) {
    if (!shard.index_kept) save_record_index(record_index_path(shard.path, index_dir_), shard.stamp, shard.index);
    shard.index_kept = true;
  }
}

LabelRange TFRecordSource::scan_labels(const Shard& shard, const std::string& label_feature) const {
  LabelRange range{label_feature, std::numeric_limits<std::int64_t>::max(), -1};
  for (std::int64_t record = 0; record < shard.index.records(); ++record) {
    std::int64_t label = 0;
    std::optional<SampleProblem> problem;
    with_record(shard, record,
                [&](const RecordFile&, std::string_view bytes) { problem = read_class(bytes, label_feature, label); });
    if (problem) fail(shard, record, *problem);
    range.lowest = std::min(range.lowest, label);
    range.highest = std::max(range.highest, label);
  }
  return range;
}

void TFRecordSource::fail(const Shard& shard, std::int64_t record, const SampleProblem& problem) {
  const auto offset = static_cast<std::int64_t>(shard.index.offsets[static_cast<std::size_t>(record)]);
  const RecordLocation location{shard.path.string(), record, offset};
  throw Error(ErrorCategory::data, location.text(), problem.needed, problem.given);
}

const TFRecordSource::Shard& TFRecordSource::shard_of(std::int64_t record_id) const {
  LOCKSTEP_CHECK(record_id >= 0 && record_id < size());
  const auto after = std::upper_bound(shards_.begin(), shards_.end(), record_id,
                                      [](std::int64_t id, const Shard& shard) { return id < shard.first_record; });
  return *std::prev(after);
}

std::string TFRecordSource::stored(std::int64_t record_id) const {
  const Shard& shard = shard_of(record_id);
  std::string bytes;
  with_record(shard, record_id - shard.first_record,
              [&](const RecordFile&, std::string_view record) { bytes = record; });
  return bytes;
}

std::vector<std::filesystem::path> TFRecordSource::unpacked_files(std::int64_t records) const {
  std::vector<std::filesystem::path> files;
  for (const Shard& shard : shards_) {
    const bool is_packed = shard.file && shard.file->compression() != Compression::none;
    if (shard.first_record < records && shard.index.records() > 0 && !is_packed) files.push_back(shard.path);
  }
  return files;
}

std::vector<StoredFile> TFRecordSource::files() const {
  std::vector<StoredFile> files;
  for (const Shard& shard : shards_)
    files.push_back({shard.path.filename().string(), shard.index.records(), shard.stamp.size});
  return files;
}

void TFRecordSource::will_need(Range record_ids) const {
  while (record_ids.begin < record_ids.end) {
    const Shard& shard = shard_of(record_ids.begin);
    const auto first = static_cast<std::size_t>(record_ids.begin - shard.first_record);
    const std::int64_t end = std::min(record_ids.end, shard.first_record + shard.index.records());
    const std::vector<std::uint64_t>& offsets = shard.index.offsets;
    const auto after = static_cast<std::size_t>(end - shard.first_record);
    if (shard.file) shard.file->will_need(offsets[first], offsets[after] - offsets[first]);
    record_ids.begin = end;
  }
}

void TFRecordSource::read(std::int64_t record_id, Sample& sample) const {
  const Shard& shard = shard_of(record_id);
  std::optional<SampleProblem> problem;
  with_record(shard, record_id - shard.first_record,
              [&](const RecordFile&, std::string_view record) { problem = decoder_->decode(record, sample); });
  if (problem) fail(shard, record_id - shard.first_record, *problem);
}

}  // namespace lockstep::data
