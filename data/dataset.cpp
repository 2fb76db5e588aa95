#include "data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "data/pipeline/pipeline.h"
#include "data/pipeline/prefetch_stream.h"
#include "data/pipeline/sharding.h"
#include "data/source/csv_source.h"
#include "data/source/idx_source.h"
#include "data/source/synthetic_source.h"
#include "data/source/tfrecord_source.h"
#include "device/error.h"

namespace lockstep::data {

struct Dataset::Description : Pipeline {};

Dataset::Dataset(std::shared_ptr<const Description> description) : description_(std::move(description)) {}

Dataset Dataset::from_source(std::shared_ptr<const RecordSource> source) {
  Description description;
  description.spec = source->spec();
  description.source = std::move(source);
  return Dataset(std::make_shared<const Description>(std::move(description)));
}

Dataset Dataset::from_tfrecords(const std::string& glob, const TFRecordOptions& options) {
  const auto files = matching_files({glob});
  const std::string directory = files.front().has_parent_path() ? files.front().parent_path().string() : ".";
  auto description = fmt::format("{} TFRecord file{} in {}", files.size(), files.size() == 1 ? "" : "s", directory);
  return from_source(std::make_shared<TFRecordSource>(files, options, std::move(description)));
}

Dataset Dataset::from_idx(const std::filesystem::path& directory, const std::string& part) {
  return from_source(std::make_shared<IdxSource>(directory, part));
}

Dataset Dataset::from_csv(const std::filesystem::path& file) { return from_source(std::make_shared<CsvSource>(file)); }

Dataset Dataset::synthetic(std::vector<std::int64_t> shape, std::int64_t classes, std::int64_t count,
                           std::uint64_t seed, const std::string& part) {
  return from_source(std::make_shared<SyntheticSource>(SyntheticOptions{std::move(shape), classes, count, seed, part}));
}

Dataset Dataset::images(const ImageRecipe& recipe) const {
  if (!source().has_images())
    throw Error(ErrorCategory::input, "images", "needed records that are images",
                "those of " + description() + " are not");
  const std::vector<std::int64_t>& stored = source().spec().shape;
  if (!source().has_encoded_images() && (stored.size() != 3 || stored.back() != recipe.channels))
    throw Error(ErrorCategory::input, "images",
                fmt::format("needed images [H, W, {}] for the recipe {}", recipe.channels, recipe.name),
                fmt::format("those of {} are [{}]", description(), fmt::join(stored, ", ")));
  Description changed = *description_;
  changed.images = std::make_shared<const ImageTransform>(recipe);
  changed.spec.shape = {recipe.height, recipe.width, recipe.channels};
  return Dataset(std::make_shared<const Description>(std::move(changed)));
}

Dataset Dataset::map(SampleMap map) const {
  Description changed = *description_;
  changed.maps.push_back(std::move(map));
  return Dataset(std::make_shared<const Description>(std::move(changed)));
}

Dataset Dataset::normalize(const device::ChannelNormalization& normalization) const {
  const std::int64_t channels = spec().shape.empty() ? 0 : spec().shape.back();
  const auto given = std::span(normalization.deviation)
                         .first(static_cast<std::size_t>(
                             std::clamp(normalization.channels, 0, device::ChannelNormalization::kMostChannels)));
  if (normalization.channels != channels || !std::ranges::all_of(given, [](float d) { return d > 0; })) {
    throw Error(ErrorCategory::input, "normalize",
                fmt::format("needed a mean and a deviation above 0 for each of the {} channels", channels),
                fmt::format("{} deviations were given: {}", normalization.channels, fmt::join(given, ", ")));
  }
  Description changed = *description_;
  changed.normalization = normalization;
  return Dataset(std::make_shared<const Description>(std::move(changed)));
}

Dataset Dataset::shuffle() const {
  Description changed = *description_;
  changed.shuffled = true;
  return Dataset(std::make_shared<const Description>(std::move(changed)));
}

Dataset Dataset::batch(std::int64_t global_batch) const {
  if (global_batch < 1) {
    throw Error(ErrorCategory::input, "batch", "needed a global batch of at least 1 sample",
                fmt::format("{} was given", global_batch));
  }
  Description changed = *description_;
  changed.global_batch = global_batch;
  return Dataset(std::make_shared<const Description>(std::move(changed)));
}

Dataset Dataset::shard(ShardPolicy policy) const {
  Description changed = *description_;
  changed.policy = policy;
  return Dataset(std::make_shared<const Description>(std::move(changed)));
}

Dataset Dataset::skip_bad_records(std::int64_t limit) const {
  if (limit < 0)
    throw Error(ErrorCategory::input, "bad records", "needed a limit from 0", fmt::format("{} was given", limit));
  Description changed = *description_;
  changed.bad_records = limit;
  return Dataset(std::make_shared<const Description>(std::move(changed)));
}

const SampleSpec& Dataset::spec() const { return description_->spec; }
std::int64_t Dataset::size() const { return description_->source->size(); }
std::int64_t Dataset::global_batch() const { return description_->global_batch; }
std::int64_t Dataset::steps_per_epoch(ReplicaLayout layout) const {
  return global_batch() == 0 ? 0 : Sharding(*description_, layout).plan().steps_per_epoch();
}
ShardPolicy Dataset::shard_policy() const { return description_->policy; }
std::optional<std::int64_t> Dataset::bad_records_allowed() const { return description_->bad_records; }
std::vector<WorkerShare> Dataset::shares(ReplicaLayout layout, std::uint64_t seed, std::int64_t epoch) const {
  return Sharding(*description_, layout).shares(seed, epoch);
}
std::string Dataset::description() const { return description_->source->description() + preparation(); }

std::string Dataset::preparation() const {
  std::string text;
  if (description_->images) text += fmt::format(", images {}", description_->images->recipe().name);
  const device::ChannelNormalization& normalization = description_->normalization;
  const auto channels = static_cast<std::size_t>(normalization.channels);
  if (channels > 0)
    text += fmt::format(", normalized by ({}) and ({})", fmt::join(std::span(normalization.mean).first(channels), ", "),
                        fmt::join(std::span(normalization.deviation).first(channels), ", "));
  return text;
}
const RecordSource& Dataset::source() const { return *description_->source; }

std::unique_ptr<BatchStream> Dataset::stream(const StreamOptions& options) const {
  const auto require = [&](bool condition, std::string_view needed, std::int64_t given) {
    if (!condition) throw Error(ErrorCategory::input, "stream", needed, fmt::format("{} was given", given));
  };
  if (global_batch() == 0) {
    throw Error(ErrorCategory::input, "stream", "needed a data set grouped into batches; call batch() first",
                "it is not");
  }
  if (size() == 0)
    throw Error(ErrorCategory::data, description(), "needed at least one record", "the data set is empty");
  require(options.first_step >= 0, "needed a first step from 0", options.first_step);
  require(options.replicas >= 1, "needed at least 1 replica", options.replicas);
  require(options.local_replicas >= 1, "needed at least 1 local replica", options.local_replicas);
  require(options.first_replica >= 0 && options.first_replica <= options.replicas - options.local_replicas,
          fmt::format("needed {} local of {} replicas", options.local_replicas, options.replicas),
          options.first_replica);
  require(options.prefetch >= 1, "needed a prefetch of at least 1 batch", options.prefetch);
  require(options.threads >= 1, "needed at least 1 thread", options.threads);
  return std::make_unique<PrefetchStream>(*description_, options);
}

}  // namespace lockstep::data
