#include "lockstep/data/source/cached_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/source/record_store.h"

namespace lockstep::data {
namespace {

/// Identifies the records in the header of a cache file.
std::string content_of(const RecordSource& source) {
  const SampleSpec& spec = source.spec();
  return fmt::format("{} records of {}, as {} [{}] with {} classes and {} targets", source.size(), source.description(),
                     source.has_images() ? "pixels" : "floats", fmt::join(spec.shape, ", "), spec.classes,
                     spec.targets);
}

template <typename T>
std::span<T> as(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

CachedSource::CachedSource(std::shared_ptr<const RecordSource> source, std::int64_t available)
    : WrappedSource(std::move(source), "cached in memory"),
      store_(std::make_unique<MemoryStore>(this->source().size(), record_bytes(), available)),
      states_(std::make_unique<std::atomic<State>[]>(static_cast<std::size_t>(this->source().size()))) {}

CachedSource::CachedSource(std::shared_ptr<const RecordSource> source, const std::filesystem::path& file)
    : WrappedSource(std::move(source), "cached in a file"),
      store_(std::make_unique<FileStore>(file, content_of(this->source()), this->source().size(), record_bytes())) {
  if (store_->is_complete())
    check_that_it_is_up_to_date(file);
  else
    states_ = std::make_unique<std::atomic<State>[]>(static_cast<std::size_t>(this->source().size()));
}

std::size_t CachedSource::record_bytes() const {
  const SampleSpec& spec = source().spec();
  const auto features = static_cast<std::size_t>(spec.feature_count());
  const std::size_t bytes = source().has_images() ? (features + 3) / 4 * 4 : features * sizeof(float);
  return static_cast<std::size_t>(spec.targets) * sizeof(float) + sizeof(Sample::label) + bytes;
}

std::vector<std::byte> CachedSource::make(std::int64_t record_id) const {
  const SampleSpec& spec = source().spec();
  std::vector<std::byte> record(record_bytes());
  const auto label_at = static_cast<std::size_t>(spec.targets) * sizeof(float);
  const auto features = std::span(record).subspan(label_at + sizeof(Sample::label));
  Sample sample;
  sample.targets = as<float>(std::span(record).first(label_at));
  if (source().has_images())
    sample.pixels = as<std::uint8_t>(features).first(static_cast<std::size_t>(spec.feature_count()));
  else
    sample.features = as<float>(features);
  source().read(record_id, sample);
  std::memcpy(record.data() + label_at, &sample.label, sizeof(sample.label));
  return record;
}

void CachedSource::place(std::span<const std::byte> record, Sample& sample) const {
  const auto take = [&](void* to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, record.data(), bytes);
    record = record.subspan(bytes);
  };
  take(sample.targets.data(), sample.targets.size_bytes());
  take(&sample.label, sizeof(sample.label));
  if (!has_images()) return take(sample.features.data(), sample.features.size_bytes());
  const std::span image(reinterpret_cast<const std::uint8_t*>(record.data()),
                        static_cast<std::size_t>(spec().feature_count()));
  sample.set_image(image, normalization());
}

void CachedSource::read(std::int64_t record_id, Sample& sample) const {
  auto* const state = states_ ? &states_[static_cast<std::size_t>(record_id)] : nullptr;
  if (state == nullptr || state->load(std::memory_order_acquire) == State::kept) {
    thread_local std::vector<std::byte> scratch;
    return place(store_->get(record_id, scratch), sample);
  }
  const std::vector<std::byte> record = make(record_id);
  // A record that cannot be stored remains claimed: every reader then makes it.
  if (State missing = State::missing; state->compare_exchange_strong(missing, State::claimed)) {
    store_->put(record_id, record);
    state->store(State::kept, std::memory_order_release);
  }
  place(record, sample);
}

/// A changed map or file is not visible in the description.
void CachedSource::check_that_it_is_up_to_date(const std::filesystem::path& file) const {
  const std::int64_t last = source().size() - 1;
  if (last < 0) return;
  for (const std::int64_t record_id : {std::int64_t{0}, last}) {
    std::vector<std::byte> scratch;
    if (!std::ranges::equal(store_->get(record_id, scratch), make(record_id)))
      throw Error(ErrorCategory::data, file.string(), "expected a cache of the current records",
                  fmt::format("record {} differs: remove the file, which is then rebuilt", record_id));
  }
}

}  // namespace lockstep::data
