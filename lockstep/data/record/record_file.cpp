#include "lockstep/data/record/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/data/record/record_frame.h"

namespace lockstep::inline v0::data {

std::string_view ReadWindow::read(const InputFile& file, const FileIdentity& identity,
                                  std::uint64_t offset, std::size_t count) {
  if (identity_ != identity) {
    identity_ = identity;
    held_ = 0;
    run_ = next_ = offset;
  }
  if (offset != next_) run_ = offset;
  next_ = offset + count;
  const bool is_held =
      offset >= begin_ && offset - begin_ <= held_ && held_ - (offset - begin_) >= count;
  if (!is_held) refill(file, offset, count);
  const std::size_t at = offset - begin_;
  return {buffer_.data() + at, std::min(count, held_ - at)};
}

/// Moves the window to `offset`; bytes that it already holds are not read again.
void ReadWindow::refill(const InputFile& file, std::uint64_t offset, std::size_t count) {
  const std::size_t want =
      std::max<std::size_t>(count, std::min<std::uint64_t>(offset - run_, kLargestAhead));
  std::size_t kept = 0;
  if (offset >= begin_ && offset - begin_ < held_) {
    kept = held_ - (offset - begin_);
    std::memmove(buffer_.data(), buffer_.data() + (offset - begin_), kept);
  }
  held_ = 0;  // until the file has been read
  if (buffer_.size() < want) buffer_.resize(want);
  const std::size_t got = file.read_at(offset + kept, buffer_.data() + kept, want - kept);
  begin_ = offset;
  held_ = kept + got;
}

namespace {

/// The data of an intact frame with `length` data bytes; nullopt for any problem.
std::optional<std::string_view> intact_data(std::string_view frame, std::uint64_t length,
                                            HeaderCheck& headers) {
  if (frame.size() < kRecordHeaderBytes + length + kRecordFooterBytes) return std::nullopt;
  if (record_length(frame) != length || !headers.is_intact(frame)) return std::nullopt;
  const std::string_view data = frame.substr(kRecordHeaderBytes, length);
  if (!data_intact(data, frame.substr(kRecordHeaderBytes + length))) return std::nullopt;
  return data;
}

std::string_view part_of(std::string_view bytes, std::uint64_t offset, std::size_t count) {
  return bytes.substr(std::min<std::uint64_t>(offset, bytes.size()), count);
}

/// How many of the `count` bytes at `offset` the file has.
std::size_t part_size(const InflatedFile& file, std::uint64_t offset, std::size_t count) {
  return std::min<std::uint64_t>(count, file.size - std::min(offset, file.size));
}

}  // namespace

void throw_changed(const std::filesystem::path& path) {
  throw Error(ErrorCategory::data, path.string(),
              "expected the file as it was when the data set was opened",
              "the file has changed; restart the run");
}

RecordFile::RecordFile(std::filesystem::path path, PackedDamage damage,
                       std::shared_ptr<InflatedStore> store, std::size_t number)
    : path_(std::move(path)), file_(path_), stamp_(file_->stamp()) {
  char head[kRecordHeaderBytes];
  compression_ = detect_compression({head, file_->read_at(0, head, sizeof(head))});
  if (compression_ == Compression::none) return;
  set_packed(file_->version(), damage, std::move(store), number);
  file_.reset();
}

RecordFile::RecordFile(std::filesystem::path path, const KnownFile& known, PackedDamage damage,
                       std::shared_ptr<InflatedStore> store, std::size_t number)
    : path_(std::move(path)), stamp_(known.stamp), compression_(known.compression) {
  if (compression_ == Compression::none) {
    file_.emplace(path_);
  } else {
    set_packed({.stamp = known.stamp}, damage, std::move(store), number);
    packed_->size = known.size;
  }
}

void RecordFile::set_packed(const FileVersion& version, PackedDamage damage,
                            std::shared_ptr<InflatedStore> store, std::size_t number) {
  packed_ = std::make_unique<Packed>();
  packed_->version = version;
  packed_->damage = damage;
  packed_->store = store ? std::move(store) : std::make_shared<InflatedStore>();
  packed_->number = number;
}

const InflatedFile& RecordFile::inflated() const {
  Packed& packed = *packed_;
  if (packed.is_inflated.load(std::memory_order_acquire)) return packed.inflated;
  const std::lock_guard lock(packed.mutex);
  if (packed.failure) throw Error(*packed.failure);
  if (packed.is_inflated.load(std::memory_order_relaxed)) return packed.inflated;
  try {
    const InputFile file(path_);
    if (file.stamp() != stamp_) throw_changed(path_);
    packed.inflated = packed.store->inflate(file, compression_, packed.size,
                                            packed.damage == PackedDamage::cut, packed.number);
  } catch (const Error& error) {
    packed.failure = error;
    throw;
  }
  packed.is_inflated.store(true, std::memory_order_release);
  return packed.inflated;
}

std::uint64_t RecordFile::size() const {
  return packed_ ? inflated().size : static_cast<std::uint64_t>(stamp_.size);
}

bool RecordFile::accepts_size(std::uint64_t size) {
  if (!packed_ || packed_->is_inflated) return size == this->size();
  packed_->size = size;
  return true;
}

void RecordFile::map() {
  if (file_) mapped_ = MappedFile::map(*file_, size());
}

std::string_view RecordFile::read(std::uint64_t offset, std::size_t count,
                                  std::string& scratch) const {
  const InflatedFile* const inflated = packed_ ? &this->inflated() : nullptr;
  if (inflated != nullptr && !inflated->disk) return part_of(inflated->bytes, offset, count);
  if (scratch.size() < count) scratch.resize(count);
  if (inflated == nullptr) return {scratch.data(), file_->read_at(offset, scratch.data(), count)};
  count = part_size(*inflated, offset, count);
  return {scratch.data(), inflated->disk->read_at(inflated->begin + offset, scratch.data(), count)};
}

std::string_view RecordFile::frame(std::uint64_t offset, std::size_t count,
                                   ReadWindow& window) const {
  if (!packed_) return window.read(*file_, identity_, offset, count);
  const InflatedFile& inflated = this->inflated();
  if (!inflated.disk) return part_of(inflated.bytes, offset, count);
  return window.read(*inflated.disk, identity_, inflated.begin + offset,
                     part_size(inflated, offset, count));
}

std::string_view RecordFile::record(std::int64_t record, std::uint64_t offset, std::uint64_t length,
                                    ReadWindow& window) const {
  const std::size_t count = kRecordHeaderBytes + length + kRecordFooterBytes;
  if (is_mapped()) {
    // On any problem, pread determines the cause: a file that shrank, a disk that failed, or the
    // record itself.
    if (const auto data =
            intact_data(part_of(mapped_->bytes(), offset, count), length, window.headers()))
      return *data;
  }
  const std::string_view frame = this->frame(offset, count, window);
  if (frame.size() < kRecordHeaderBytes)
    throw_truncated_length(location(record, offset), frame.size());
  if (!window.headers().is_intact(frame)) throw_length_crc(location(record, offset), frame);
  if (record_length(frame) != length) {
    throw Error(
        ErrorCategory::data, location(record, offset).text(),
        fmt::format("expected a record of {} bytes, as in the index", length),
        fmt::format("it has {}; the file has changed: restart the run", record_length(frame)));
  }
  if (frame.size() < kRecordHeaderBytes + length + kRecordFooterBytes) {
    throw_truncated_data(location(record, offset), length, frame.size() - kRecordHeaderBytes);
  }
  const std::string_view data = frame.substr(kRecordHeaderBytes, length);
  if (!data_intact(data, frame.substr(kRecordHeaderBytes + length)))
    throw_data_crc(location(record, offset));
  return data;
}

void RecordFile::will_need(std::uint64_t offset, std::uint64_t count) const {
  if (file_) return file_->will_need(offset, count);
  if (!packed_->is_inflated || !packed_->inflated.disk) return;
  packed_->inflated.disk->will_need(packed_->inflated.begin + offset, count);
}

RecordLocation RecordFile::location(std::int64_t record, std::uint64_t offset) const {
  return {path().string(), record, static_cast<std::int64_t>(offset)};
}

/// A rank that reads every 16th file still uses all groups.
std::size_t RecentFiles::group_of(std::size_t number) {
  return (number + number / kGroups) % kGroups;
}

/// The caller must hold the group's mutex.
std::shared_ptr<const RecordFile> RecentFiles::find(Group& group, std::size_t number) {
  const auto found = std::ranges::find(group.files, number, &File::first);
  if (found == group.files.end()) return nullptr;
  std::rotate(group.files.begin(), found, found + 1);
  return group.files.front().second;
}

std::shared_ptr<const RecordFile> RecentFiles::get(std::size_t number) const {
  Group& group = groups_[group_of(number)];
  {
    const std::lock_guard lock(group.mutex);
    if (auto file = find(group, number)) return file;
  }
  // Opening may take long; other threads continue, and may even open the same file.
  auto opened = std::make_shared<const RecordFile>(open_(number));
  std::shared_ptr<const RecordFile> oldest;  // closed outside the lock
  const std::lock_guard lock(group.mutex);
  if (auto file = find(group, number)) return file;
  if (group.files.size() == kMaxPerGroup) {
    oldest = std::move(group.files.back().second);
    group.files.pop_back();
  }
  group.files.insert(group.files.begin(), {number, opened});
  return opened;
}

}  // namespace lockstep::inline v0::data
