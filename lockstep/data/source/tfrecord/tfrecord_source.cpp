#include "lockstep/data/source/tfrecord/tfrecord_source.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/data/source/index_exchange.h"
#include "lockstep/data/source/tfrecord/example_decoder.h"

namespace lockstep::inline v0::data {
namespace {

/// Files up to this total size are mapped if the program allows it. Touched pages of a mapping
/// count as memory of the process, so a larger data set is read with pread. This costs nothing: the
/// first touch of a page is as slow.
constexpr std::uint64_t kMaxMappedBytes = std::uint64_t{1} << 30;

/// Equal on members that see the same file.
std::uint64_t identity_of(const std::filesystem::path& path, const FileStamp& stamp) {
  const std::string text = fmt::format("{} {}", stamp.size, path.filename().string());
  return XXH3_64bits(text.data(), text.size());
}

/// The dataset.json beside the files, which need not exist.
std::set<std::filesystem::path> descriptions_of(const std::vector<std::filesystem::path>& files) {
  std::set<std::filesystem::path> descriptions;
  for (const auto& file : files) descriptions.insert(file.parent_path() / kDatasetJson);
  return descriptions;
}

bool has_labels(const RecordIndex& index, const std::string& feature) {
  return index.labels && index.labels->feature == feature;
}

bool is_record_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.extension() != ".index" && path.extension() != ".json" &&
         !std::filesystem::is_directory(path, ignored);
}

}  // namespace

std::vector<std::filesystem::path> matching_files(const std::vector<std::string>& patterns) {
  std::vector<std::filesystem::path> files;
  for (const std::string& pattern : patterns) {
    const std::size_t before = files.size();
    // The name of a file may have the characters of a pattern.
    if (std::error_code ignored; std::filesystem::is_regular_file(pattern, ignored)) {
      files.emplace_back(pattern);
      continue;
    }
    for (const std::string& name : glob_names(pattern)) {
      if (is_record_file(name)) files.emplace_back(name);
    }
    if (files.size() == before) {
      std::error_code ignored;
      if (pattern.find_first_of("*?[") == std::string::npos &&
          !std::filesystem::exists(pattern, ignored))
        throw Error(ErrorCategory::data, pattern, "expected a file, or a pattern of files",
                    "it does not exist");
      throw Error(ErrorCategory::data, pattern, "expected files that match this pattern",
                  "there are none");
    }
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.native() < b.native(); });
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

TFRecordSource::TFRecordSource(const std::vector<std::filesystem::path>& files,
                               const TFRecordOptions& options, std::string description)
    : RecordSource({.description = std::move(description)}),
      index_dir_(options.index_dir),
      skip_damage_(options.skip_damage),
      exchange_(options.exchange),
      inflated_(std::make_shared<InflatedStore>(options.index_dir)),
      recent_([this](std::size_t shard) { return open_again(shards_[shard]); }) {
  LOCKSTEP_CHECK_OP(files.size(), >, 0u);
  open_files(files);
  find_decoder(options);
  keep_indexes();
  exchange_ = {};
}

RecordFile::PackedDamage TFRecordSource::packed_damage() const {
  return skip_damage_ ? RecordFile::PackedDamage::cut : RecordFile::PackedDamage::fail;
}

/// A compressed file uses no descriptor, and must keep its decompressed bytes.
bool TFRecordSource::keeps_open(const Shard& shard) const {
  return shard.compression != Compression::none || shards_.size() <= RecentFiles::kMaxOpen;
}

void TFRecordSource::open_files(const std::vector<std::filesystem::path>& files) {
  shards_.resize(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) shards_[i].path = files[i];
  if (exchange_.members > 1) {
    share_files();
  } else {
    for (Shard& shard : shards_)
      if (auto damage = open_file(shard)) info_.damage.push_back(*std::move(damage));
  }
  std::int64_t records = 0;
  for (const Shard& shard : shards_) {
    first_records_.push_back(std::exchange(records, records + shard.index.records()));
    info_.files.push_back(
        {shard.path.filename().string(), shard.index.records(), shard.version.stamp.size});
  }
  info_.size = records;
  map_files();
  if (records == 0) {
    throw Error(ErrorCategory::data, files.front().string(), "expected at least one record",
                !info_.damage.empty() ? info_.damage.front().text()
                : files.size() == 1
                    ? "the file is empty"
                    : fmt::format("it and {} more files are empty", files.size() - 1));
  }
}

std::optional<DamagedFile> TFRecordSource::open_file(Shard& shard) {
  const std::size_t number = &shard - shards_.data();
  RecordFile file(shard.path, packed_damage(), inflated_, number);
  shard.version = file.version();
  shard.compression = file.compression();
  auto damage = find_records(shard, file);
  shard.size = shard.is_loaded ? shard.index.offsets.back() : file.size();
  if (keeps_open(shard)) shard.file = std::make_unique<RecordFile>(std::move(file));
  return damage;
}

std::optional<DamagedFile> TFRecordSource::find_records(Shard& shard, RecordFile& file) {
  auto kept = load_record_index(record_index_path(shard.path, index_dir_), shard.version);
  if (kept && file.accepts_size(kept->offsets.back())) {
    shard.index = *std::move(kept);
    shard.is_loaded = true;
    return std::nullopt;
  }
  std::optional<DamagedFile> damage;
  shard.index = skip_damage_ ? build_record_index(file, damage) : build_record_index(file);
  shard.state = damage ? IndexState::not_worth_keeping : IndexState::new_or_changed;
  return damage;
}

void TFRecordSource::share_store() {
  using Handle = InflatedStore::Handle;
  const auto node = members_of_node(exchange_, "TFRecord files");
  const auto handles = gather_work(exchange_, [&] {
    const Handle own = node.size() > 1 ? inflated_->handle(shards_.size()) : Handle{};
    return std::string(reinterpret_cast<const char*>(&own), sizeof(own));
  });
  if (node.size() == 1) return;
  std::vector<Handle> stores(node.size());
  std::size_t own = 0;
  for (std::size_t i = 0; i < node.size(); ++i) {
    std::memcpy(&stores[i], handles[node[i]].data(), sizeof(Handle));
    if (node[i] == static_cast<std::size_t>(exchange_.member)) own = i;
  }
  inflated_->share(stores, own);
}

void TFRecordSource::share_files() {
  share_store();
  std::vector<std::filesystem::path> files;
  for (const Shard& shard : shards_) files.push_back(shard.path);
  // The descriptions decide which collective calls follow.
  for (const auto& description : descriptions_of(files)) files.push_back(description);
  const auto scans = gather_work(exchange_, [&] {
    std::vector<ScannedFile> scanned;
    std::vector<std::uint64_t> identities;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      Shard& shard = shards_[i];
      if (reads_file(exchange_, i)) {
        auto damage = open_file(shard);
        scanned.push_back({i, shard.compression, shard.size, shard.is_loaded,
                           std::move(shard.index), std::move(damage)});
      } else {
        shard.version.stamp = InputFile(shard.path).stamp();
      }
      identities.push_back(identity_of(shard.path, shard.version.stamp));
    }
    for (std::size_t i = shards_.size(); i < files.size(); ++i) {
      std::error_code ignored;
      const bool exists = std::filesystem::exists(files[i], ignored);
      identities.push_back(exists ? identity_of(files[i], file_stamp(files[i])) : 0);
    }
    return pack_scan(identities, scanned);
  });
  std::vector<ScannedFile> scanned = unpack_scans(scans, files);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    shard.index = std::move(scanned[i].index);
    if (scanned[i].damage) info_.damage.push_back(*std::move(scanned[i].damage));
    if (reads_file(exchange_, i)) continue;
    shard.compression = scanned[i].compression;
    shard.is_loaded = scanned[i].is_loaded;
    if (keeps_open(shard))
      shard.file = std::make_unique<RecordFile>(
          shard.path, KnownFile{shard.version.stamp, shard.compression, scanned[i].size},
          packed_damage(), inflated_, i);
  }
  const bool is_any_packed = std::ranges::any_of(
      shards_, [](const Shard& shard) { return shard.compression != Compression::none; });
  if (!is_any_packed) inflated_.reset();
}

void TFRecordSource::map_files() {
  std::uint64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += static_cast<std::uint64_t>(shard.version.stamp.size);
  if (bytes > kMaxMappedBytes || shards_.size() > RecentFiles::kMaxOpen) return;
  for (Shard& shard : shards_) shard.file->map();
}

RecordFile TFRecordSource::open_again(const Shard& shard) {
  RecordFile file(shard.path);
  // Not the whole version: on some network file systems a file's inode changes.
  if (file.stamp() != shard.version.stamp) throw_changed(shard.path);
  return file;
}

template <typename Use>
void TFRecordSource::with_record(std::size_t shard_number, std::int64_t record, Use use) const {
  const Shard& shard = shards_[shard_number];
  if (!shard.file) {
    const auto file = recent_.get(shard_number);
    return use(record_of(shard, *file, record));
  }
  const bool was_mapped = shard.file->is_mapped();
  use(record_of(shard, *shard.file, record));
  if (was_mapped && !shard.file->is_mapped()) use(record_of(shard, *shard.file, record));
}

std::string_view TFRecordSource::record_of(const Shard& shard, const RecordFile& file,
                                           std::int64_t record) const {
  thread_local ReadWindow window;
  const std::uint64_t offset = shard.index.offsets[record];
  try {
    return file.record(record, offset, shard.index.length(record), window);
  } catch (const Error& error) {
    const std::string hint = index_hint(shard, error);
    if (hint.empty()) throw;
    ErrorMessage message = error.message();
    message.actual += hint;
    throw Error(error.category(), std::move(message));
  }
}

std::string TFRecordSource::index_hint(const Shard& shard, const Error& error) const {
  const auto* damage = dynamic_cast<const RecordError*>(&error);
  // If the length is where the index states, the record itself is damaged.
  if (!shard.is_loaded || (damage != nullptr && damage->fault() == RecordFault::data_crc))
    return "";
  return fmt::format("; if another file has replaced this one, remove its index {}",
                     record_index_path(shard.path, index_dir_).string());
}

std::string TFRecordSource::index_hint(const Shard& shard, std::string_view record) const {
  const auto& labels = shard.index.labels;
  std::int64_t label = 0;
  if (!shard.is_loaded || !labels || read_class(record, labels->feature, label) ||
      (label >= labels->lowest && label <= labels->highest))
    return "";
  return fmt::format("; its index {} was made from another file: remove it",
                     record_index_path(shard.path, index_dir_).string());
}

void TFRecordSource::find_decoder(const TFRecordOptions& options) {
  std::vector<std::filesystem::path> paths;
  for (const Shard& shard : shards_) paths.push_back(shard.path);
  const auto described = find_description(paths);
  RecordSchema schema = first_schema(options, described);
  if (schema.counts_labels()) {
    const LabelRange labels = find_labels(schema.features.back());
    schema.spec.targets.front().classes = labels.highest + 1;
    info_.description += text_of_labels(labels.lowest, labels.highest);
  }
  info_.spec = schema.spec;
  info_.has_images = schema.input != InputKind::floats;
  info_.has_encoded_images = schema.input == InputKind::encoded_image;
  info_.class_names = schema.class_names;
  info_.counts_classes = schema.class_names.empty();
  info_.feature_names = schema.feature_names;
  info_.target_names = schema.target_names;
  if (schema.text) info_.text = std::make_shared<const TextSchema>(*schema.text);
  pads_ = schema.pads;
  decoder_.emplace(schema.spec, schema.input, schema.features);
}

RecordSchema TFRecordSource::schema_of(std::int64_t record_id, const TFRecordOptions& options,
                                       const std::optional<PartDescription>& described) const {
  const RecordPosition position = position_of(record_id);
  RecordSchema schema;
  with_record(position.shard, position.record, [&](std::string_view bytes) {
    schema =
        find_schema(options, described, bytes, location(position.shard, position.record).text());
  });
  return schema;
}

std::pair<std::int64_t, std::string> TFRecordSource::first_record(
    const TFRecordOptions& options, const std::optional<PartDescription>& described) const {
  constexpr std::int64_t kMaxTried = 100;  // more than a few records are damaged
  for (std::int64_t id = 0; skip_damage_ && id < std::min(size(), kMaxTried); ++id) {
    try {
      schema_of(id, options, described);
      return {id, stored(id)};
    } catch (const Error& error) {
      if (error.category() != ErrorCategory::data) throw;
    }
  }
  return {0, stored(0)};
}

RecordSchema TFRecordSource::first_schema(const TFRecordOptions& options,
                                          const std::optional<PartDescription>& described) const {
  // One member reads the record, so that the others need not open its file.
  const std::string read = gather_work(exchange_, [&]() -> std::string {
                             if (exchange_.member != 0) return {};
                             const auto [id, bytes] = first_record(options, described);
                             return fmt::format("{} {}", id, bytes);
                           }).front();
  const std::size_t space = read.find(' ');
  const RecordPosition position = position_of(std::stoll(read.substr(0, space)));
  return find_schema(options, described, std::string_view(read).substr(space + 1),
                     location(position.shard, position.record).text());
}

std::vector<std::pair<std::size_t, LabelRange>> TFRecordSource::scan_my_labels(
    const std::string& label_feature) {
  std::vector<std::pair<std::size_t, LabelRange>> scanned;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    if (!reads_file(exchange_, i) || has_labels(shard.index, label_feature)) continue;
    bool is_whole = true;
    scanned.emplace_back(i, scan_labels(i, label_feature, is_whole));
    if (!is_whole) shard.state = IndexState::not_worth_keeping;
    if (shard.state == IndexState::kept) shard.state = IndexState::new_or_changed;
  }
  return scanned;
}

LabelRange TFRecordSource::find_labels(const std::string& label_feature) {
  // All members have the same indexes, so all have the same result.
  const bool are_known = std::ranges::all_of(
      shards_, [&](const Shard& shard) { return has_labels(shard.index, label_feature); });
  if (!are_known) {
    const auto all = gather_work(exchange_, [&] {
      std::string text;
      for (const auto& [i, range] : scan_my_labels(label_feature))
        text += fmt::format("{} {} {} ", i, range.lowest, range.highest);
      return text;
    });
    for (const std::string& text : all) {
      std::istringstream numbers(text);
      LabelRange range{label_feature};
      for (std::size_t i = 0; numbers >> i >> range.lowest >> range.highest;)
        shards_[i].index.labels = range;
    }
  }
  LabelRange range{label_feature, std::numeric_limits<std::int64_t>::max(), -1};
  for (const Shard& shard : shards_) {
    range.lowest = std::min(range.lowest, shard.index.labels->lowest);
    range.highest = std::max(range.highest, shard.index.labels->highest);
  }
  return range;
}

/// Once, at the end: replacing a file just written makes some file systems wait for the disk.
void TFRecordSource::keep_indexes() {
  std::set<std::filesystem::path> cleaned;
  for (Shard& shard : shards_) {
    if (shard.state != IndexState::new_or_changed) continue;
    const auto path = record_index_path(shard.path, index_dir_);
    if (cleaned.insert(path.parent_path()).second) remove_abandoned_temporaries(path.parent_path());
    save_record_index(path, shard.version, shard.index);
    shard.state = IndexState::kept;
  }
}

LabelRange TFRecordSource::scan_labels(std::size_t shard, const std::string& label_feature,
                                       bool& is_whole) const {
  LabelRange range{label_feature, std::numeric_limits<std::int64_t>::max(), -1};
  for (std::int64_t record = 0; record < shards_[shard].index.records(); ++record) {
    std::int64_t label = 0;
    std::optional<SampleProblem> problem;
    try {
      with_record(shard, record, [&](std::string_view bytes) {
        problem = read_class(bytes, label_feature, label);
      });
      if (problem) fail({shard, record}, *problem);
    } catch (const Error&) {
      if (!skip_damage_) throw;
      is_whole = false;
      continue;
    }
    range.lowest = std::min(range.lowest, label);
    range.highest = std::max(range.highest, label);
  }
  return range;
}

RecordLocation TFRecordSource::location(std::size_t shard, std::int64_t record) const {
  const auto offset = shards_[shard].index.offsets[record];
  return {shards_[shard].path.string(), record, static_cast<std::int64_t>(offset)};
}

void TFRecordSource::fail(const RecordPosition& position, const SampleProblem& problem) const {
  throw Error(ErrorCategory::data, location(position.shard, position.record).text(),
              problem.expected, problem.actual);
}

TFRecordSource::RecordPosition TFRecordSource::position_of(std::int64_t record_id) const {
  LOCKSTEP_CHECK(record_id >= 0 && record_id < size());
  const auto after = std::upper_bound(first_records_.begin(), first_records_.end(), record_id);
  const auto shard = static_cast<std::size_t>(after - first_records_.begin()) - 1;
  return {shard, record_id - first_records_[shard]};
}

std::string TFRecordSource::stored(std::int64_t record_id) const {
  const auto [shard, record] = position_of(record_id);
  std::string stored;
  with_record(shard, record, [&](std::string_view bytes) { stored = bytes; });
  return stored;
}

std::vector<std::filesystem::path> TFRecordSource::unpacked_files(std::int64_t records) const {
  std::vector<std::filesystem::path> files;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = shards_[i];
    const bool is_packed = shard.file && shard.file->compression() != Compression::none;
    if (first_records_[i] < records && shard.index.records() > 0 && !is_packed)
      files.push_back(shard.path);
  }
  return files;
}

/// Opens the file if necessary. Its errors are reported when its records are read.
void TFRecordSource::advise(std::size_t shard, std::uint64_t begin, std::uint64_t bytes) const {
  try {
    recent_.get(shard)->will_need(begin, bytes);
  } catch (const Error&) {
    return;
  }
}

void TFRecordSource::will_need(Range record_ids) const {
  while (record_ids.begin < record_ids.end) {
    const RecordPosition first = position_of(record_ids.begin);
    const Shard& shard = shards_[first.shard];
    const std::int64_t count = std::min(record_ids.size(), shard.index.records() - first.record);
    const std::uint64_t begin = shard.index.offsets[first.record];
    const std::uint64_t bytes = shard.index.offsets[first.record + count] - begin;
    if (shard.file)
      shard.file->will_need(begin, bytes);
    else
      advise(first.shard, begin, bytes);
    record_ids.begin += count;
  }
}

void TFRecordSource::release_pages() const {
  for (const Shard& shard : shards_)
    if (shard.file) shard.file->release_pages();
}

void TFRecordSource::read(std::int64_t record_id, Sample& sample) const {
  const RecordPosition position = position_of(record_id);
  std::optional<SampleProblem> problem;
  const Shard& shard = shards_[position.shard];
  with_record(position.shard, position.record, [&](std::string_view bytes) {
    if (sample.image != nullptr) {
      sample.image->source = this;
      sample.image->record_id = record_id;
      sample.image->is_mapped = shard.file && shard.file->is_mapped();
    }
    problem = decoder_->decode(bytes, sample);
    if (problem) problem->actual += index_hint(shard, bytes);
  });
  if (problem) fail(position, *problem);
}

bool TFRecordSource::keeps_image(const StoredImage& image) const {
  return !image.is_mapped || shards_[position_of(image.record_id).shard].file->is_mapped();
}

void TFRecordSource::fail_image(std::int64_t record_id, const Error& error) const {
  const RecordPosition position = position_of(record_id);
  SampleProblem problem = decoder_->unusable_image(error);
  with_record(position.shard, position.record, [&](std::string_view bytes) {
    problem.actual += index_hint(shards_[position.shard], bytes);
  });
  fail(position, problem);
}

}  // namespace lockstep::inline v0::data
