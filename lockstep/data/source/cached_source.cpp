#include "lockstep/data/source/cached_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/data/sample/batch.h"

namespace lockstep::inline v0::data {
namespace {

/// Identifies the records in the header of a cache file.
std::string content_of(const RecordSource& source) {
  return fmt::format("{} records of {}, as {} {}", source.size(), source.info().description,
                     source.info().has_images ? "pixels" : "floats", to_string(source.spec()));
}

}  // namespace

CachedSource::CachedSource(std::shared_ptr<const RecordSource> source, std::int64_t available)
    : WrappedSource(std::move(source)),
      store_(std::make_unique<MemoryStore>(size(), record_bytes(), available)),
      states_(std::make_unique<std::atomic<State>[]>(static_cast<std::size_t>(size()))) {
  describe_cache(", cached in memory");
}

CachedSource::CachedSource(std::shared_ptr<const RecordSource> source,
                           const std::filesystem::path& file)
    : WrappedSource(std::move(source)),
      store_(
          std::make_unique<FileStore>(file, content_of(this->source()), size(), record_bytes())) {
  describe_cache(", cached in a file");
  if (store_->is_complete())
    check_that_it_is_up_to_date(file);
  else
    states_ = std::make_unique<std::atomic<State>[]>(static_cast<std::size_t>(size()));
}

void CachedSource::describe_cache(const std::string& operation) {
  describe(operation);
  info_.has_encoded_images = false;
  info_.files.clear();
}

std::size_t CachedSource::record_bytes() const {
  const SampleSpec& spec = source().spec();
  check_fixed_sizes(spec.inputs, "cache");
  check_fixed_sizes(spec.targets, "cache");
  std::size_t bytes = spec.weighted ? sizeof(Sample::weight) : 0;
  for (const TensorSpec& target : spec.targets) bytes += target.bytes();
  for (const TensorSpec& input : spec.inputs) bytes += input.bytes();
  if (info_.has_images)
    bytes -= spec.inputs.front().bytes() - static_cast<std::size_t>(spec.feature_count());
  return bytes;
}

std::vector<std::byte> CachedSource::make(std::int64_t record_id) const {
  Batch one(source().spec(), 1, info_.has_images);
  Sample sample = one.sample();
  source().read(record_id, sample);
  std::vector<std::byte> record;
  record.reserve(record_bytes());
  for (const TensorArray& target : one.targets)
    record.insert(record.end(), target.bytes.begin(), target.bytes.end());
  if (source().spec().weighted) {
    const auto weight = std::as_bytes(std::span(&sample.weight, 1));
    record.insert(record.end(), weight.begin(), weight.end());
  }
  for (const TensorArray& input : one.inputs)
    record.insert(record.end(), input.bytes.begin(), input.bytes.end());
  return record;
}

void CachedSource::copy_to_sample(std::span<const std::byte> record, Sample& sample) const {
  const auto take = [&](void* to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, record.data(), bytes);
    record = record.subspan(bytes);
  };
  const auto add_tensor = [&](const TensorView& view) {
    take(view.data, view.elements * element_bytes(view.type));
  };
  for (const TensorView& target : sample.targets) add_tensor(target);
  if (spec().weighted) take(&sample.weight, sizeof(sample.weight));
  if (info_.has_images) {
    const auto bytes = static_cast<std::size_t>(spec().feature_count());
    sample.set_image_view({reinterpret_cast<const std::uint8_t*>(record.data()), bytes},
                          info_.normalization);
    record = record.subspan(bytes);
  }
  for (const TensorView& input : std::span(sample.inputs).subspan(info_.has_images ? 1 : 0))
    add_tensor(input);
}

void CachedSource::read(std::int64_t record_id, Sample& sample) const {
  thread_local std::vector<std::byte> record;  // a StoredImage may be a view of it
  auto* const state = states_ ? &states_[record_id] : nullptr;
  if (state == nullptr || state->load(std::memory_order_acquire) == State::kept)
    return copy_to_sample(store_->get(record_id, record), sample);
  record = make(record_id);
  // A record that cannot be stored remains claimed: every reader then makes it.
  if (State missing = State::missing; state->compare_exchange_strong(missing, State::claimed)) {
    store_->put(record_id, record);
    state->store(State::kept, std::memory_order_release);
  }
  copy_to_sample(record, sample);
}

/// A changed map or file is not visible in the description.
void CachedSource::check_that_it_is_up_to_date(const std::filesystem::path& file) const {
  const std::int64_t last = source().size() - 1;
  if (last < 0) return;
  for (const std::int64_t record_id : {std::int64_t{0}, last}) {
    std::vector<std::byte> scratch;
    if (!std::ranges::equal(store_->get(record_id, scratch), make(record_id)))
      throw Error(
          ErrorCategory::data, file.string(), "expected a cache of the current records",
          fmt::format("record {} differs: remove the file, which is then rebuilt", record_id));
  }
}

MemoryStore::MemoryStore(std::int64_t records, std::size_t record_bytes, std::int64_t available)
    : record_bytes_(record_bytes) {
  const double needed = static_cast<double>(records) * static_cast<double>(record_bytes);
  if (needed > static_cast<double>(available))
    throw Error(ErrorCategory::input, "cache",
                fmt::format("expected {:.1f} MiB of memory for {} records of {} bytes",
                            needed / 0x1p20, records, record_bytes),
                fmt::format("{:.1f} MiB are available: use cache(file)",
                            static_cast<double>(available) / 0x1p20));
  bytes_ =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(records) * record_bytes);
}

void MemoryStore::put(std::int64_t record_id, std::span<const std::byte> record) {
  LOCKSTEP_CHECK_OP(record.size(), ==, record_bytes_);
  std::ranges::copy(record, bytes_.get() + static_cast<std::size_t>(record_id) * record_bytes_);
}

std::span<const std::byte> MemoryStore::get(std::int64_t record_id, std::vector<std::byte>&) const {
  return {bytes_.get() + static_cast<std::size_t>(record_id) * record_bytes_, record_bytes_};
}

namespace {

constexpr std::string_view kMagic = "LSCACHE\n";
constexpr std::uint32_t kCacheVersion = 1;
constexpr std::size_t kNumbersEnd = kMagic.size() + 24;
constexpr std::size_t kCrcBytes = 4;

template <typename T>
void append_number(std::string& bytes, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

template <typename T>
T number_at(std::string_view bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

std::string make_header(const std::string& text, std::int64_t records, std::size_t record_bytes) {
  std::string header(kMagic);
  append_number(header, kCacheVersion);
  append_number(header, static_cast<std::uint32_t>(text.size()));
  append_number(header, static_cast<std::uint64_t>(records));
  append_number(header, static_cast<std::uint64_t>(record_bytes));
  header += text;
  append_number(header, crc32c(header));
  return header;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string read_text(const InputFile& file, std::uint64_t offset, std::size_t count) {
  std::string bytes(count, '\0');
  bytes.resize(file.read_at(offset, bytes.data(), count));
  return bytes;
}

}  // namespace

FileStore::FileStore(std::filesystem::path path, const std::string& text, std::int64_t records,
                     std::size_t record_bytes)
    : path_(std::move(path)), records_(records), record_bytes_(record_bytes), missing_(records) {
  const std::string header = make_header(text, records, record_bytes);
  header_bytes_ = header.size();
  if (std::error_code ignored; std::filesystem::exists(path_, ignored)) {
    reader_.emplace(path_);
    check(header);
  } else {
    create(header);
  }
}

void FileStore::check(const std::string& header) const {
  const auto fail = [&](std::string_view needed, std::string_view actual) {
    throw Error(ErrorCategory::data, path_.string(), needed,
                fmt::format("{}: remove it, or choose another file", actual));
  };
  const std::string numbers = read_text(*reader_, 0, kNumbersEnd);
  if (numbers.size() < kNumbersEnd || !numbers.starts_with(kMagic))
    fail("expected a cache file", "the file is not a cache file");
  const auto version = number_at<std::uint32_t>(numbers, kMagic.size());
  if (version != kCacheVersion)
    fail(fmt::format("expected a cache file of version {}", kCacheVersion),
         fmt::format("its version is {}", version));
  const auto text_bytes =
      std::min<std::size_t>(number_at<std::uint32_t>(numbers, kMagic.size() + 4), 1U << 24);
  const std::string found = read_text(*reader_, 0, kNumbersEnd + text_bytes + kCrcBytes);
  const std::string_view front = std::string_view(found).substr(0, kNumbersEnd + text_bytes);
  if (found.size() < front.size() + kCrcBytes ||
      number_at<std::uint32_t>(found, front.size()) != crc32c(front))
    fail("expected an intact cache file", "its header does not match its checksum");
  if (found != header)
    fail(fmt::format("expected a cache of {}",
                     header.substr(kNumbersEnd, header.size() - kNumbersEnd - kCrcBytes)),
         fmt::format("it is a cache of {}", front.substr(kNumbersEnd)));
  const auto bytes = static_cast<std::uint64_t>(file_stamp(path_).size);
  if (bytes != offset_of(records_))
    fail(fmt::format("expected {} bytes for {} records", offset_of(records_), records_),
         fmt::format("it has {}", bytes));
}

void FileStore::create(const std::string& header) {
  remove_abandoned_temporaries(path_.parent_path(), path_.filename().native());
  // Not category data: a full disk is not a problem of the records.
  writer_.emplace(path_, Durability::cached, ErrorCategory::output, Existing::regular_only);
  const std::filesystem::path directory = path_.has_parent_path() ? path_.parent_path() : ".";
  std::error_code unknown;
  const auto available_bytes = std::filesystem::space(directory, unknown).available;
  if (!unknown && available_bytes < offset_of(records_))
    throw Error(
        ErrorCategory::output, path_.string(),
        fmt::format("expected {:.1f} MiB on the disk for {} records of {} bytes",
                    static_cast<double>(offset_of(records_)) / 0x1p20, records_, record_bytes_),
        fmt::format("{:.1f} MiB are free", static_cast<double>(available_bytes) / 0x1p20));
  writer_->write_at(0, header);
  reader_.emplace(writer_->temporary());
}

std::uint64_t FileStore::offset_of(std::int64_t record_id) const {
  return header_bytes_ + static_cast<std::uint64_t>(record_id) * (record_bytes_ + kCrcBytes);
}

void FileStore::put(std::int64_t record_id, std::span<const std::byte> record) {
  LOCKSTEP_CHECK_OP(record.size(), ==, record_bytes_);
  std::string bytes(as_text(record));
  append_number(bytes, crc32c(bytes));
  writer_->write_at(offset_of(record_id), bytes);
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  writer_->finish();
  if (std::error_code ignored; !std::filesystem::exists(path_, ignored)) writer_->publish();
}

std::span<const std::byte> FileStore::get(std::int64_t record_id,
                                          std::vector<std::byte>& scratch) const {
  scratch.resize(record_bytes_ + kCrcBytes);
  const std::size_t got = reader_->read_at(offset_of(record_id),
                                           reinterpret_cast<char*>(scratch.data()), scratch.size());
  const auto record = std::span<const std::byte>(scratch).first(record_bytes_);
  if (got < scratch.size() ||
      number_at<std::uint32_t>(as_text(scratch), record_bytes_) != crc32c(as_text(record)))
    throw Error(ErrorCategory::data, fmt::format("{}: record {}", path_.string(), record_id),
                "expected an intact record",
                "it does not match its checksum: remove the file, which is then rebuilt");
  return record;
}

}  // namespace lockstep::inline v0::data
