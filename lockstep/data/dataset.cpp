#include "lockstep/data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/data/pipeline/mixup.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/pipeline/prefetch_stream.h"
#include "lockstep/data/pipeline/sharding.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/source/cached_source.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "lockstep/data/source/idx_source.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/data/source/memory_source.h"
#include "lockstep/data/source/split_source.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"
#include "lockstep/data/source/wrapped_source.h"

namespace lockstep::inline v0::data {

struct Dataset::Description : Pipeline {};

Dataset::Dataset(std::shared_ptr<const Description> description)
    : description_(std::move(description)) {}

Dataset Dataset::from_source(std::shared_ptr<const RecordSource> source) {
  check_spec(source->spec(), source->info().description);
  return Dataset(std::make_shared<const Description>()).with_records(std::move(source));
}

Dataset Dataset::from_tfrecords(const std::string& glob, const TFRecordOptions& options) {
  const auto files = matching_files({glob});
  const std::string directory =
      files.front().has_parent_path() ? files.front().parent_path().string() : ".";
  auto description = fmt::format("{} in {}", counted(files.size(), "TFRecord file"), directory);
  return from_tfrecords(files, options, std::move(description));
}

Dataset Dataset::from_tfrecords(const std::vector<std::filesystem::path>& files,
                                const TFRecordOptions& options, std::string description) {
  const auto source = std::make_shared<TFRecordSource>(files, options, std::move(description));
  Dataset dataset = from_source(source);
  const auto pad_all = [&](const std::vector<TensorSpec>& tensors) {
    for (const TensorSpec& tensor : tensors)
      if (const auto pad = source->pads().find(tensor.name); pad != source->pads().end())
        dataset = dataset.pad(tensor.name, pad->second);
  };
  pad_all(source->spec().inputs);
  pad_all(source->spec().targets);
  return dataset;
}

Dataset Dataset::from_idx(const std::filesystem::path& directory, const std::string& part,
                          const IndexExchange& exchange) {
  return from_source(std::make_shared<IdxSource>(directory, part, "", exchange));
}

Dataset Dataset::from_csv(const std::filesystem::path& file, const CsvOptions& options) {
  return from_source(std::make_shared<CsvSource>(file, options));
}

Dataset Dataset::from_images(const std::filesystem::path& directory,
                             const std::vector<std::int64_t>& shape) {
  return from_source(std::make_shared<ImageFolderSource>(directory, shape));
}

Dataset Dataset::synthetic(std::vector<std::int64_t> shape, std::int64_t classes,
                           std::int64_t count, std::uint64_t seed, const std::string& part) {
  return from_source(std::make_shared<SyntheticSource>(
      SyntheticOptions{std::move(shape), classes, count, seed, part}));
}

Dataset Dataset::from_memory(MemoryFeatures features, MemoryLabels labels, SampleSpec spec) {
  return from_source(
      std::make_shared<MemorySource>(std::move(features), std::move(labels), std::move(spec)));
}

Dataset Dataset::from_memory(std::vector<MemoryTensor> inputs, std::vector<MemoryTensor> targets,
                             SampleSpec spec, std::vector<float> weights) {
  return from_source(std::make_shared<MemorySource>(std::move(inputs), std::move(targets),
                                                    std::move(spec), std::move(weights)));
}

Dataset Dataset::from_generator(SampleSpec spec, std::int64_t count, SampleGenerator generate) {
  return from_source(
      std::make_shared<GeneratorSource>(std::move(spec), count, std::move(generate)));
}

Dataset Dataset::interleave(const std::vector<Dataset>& datasets, std::int64_t cycle_length,
                            std::int64_t block_length) {
  std::vector<std::shared_ptr<const RecordSource>> sources;
  for (const Dataset& dataset : datasets) sources.push_back(dataset.records_for("interleave"));
  return from_source(
      std::make_shared<InterleavedSource>(std::move(sources), cycle_length, block_length));
}

/// The records with all preceding operations applied, as the input of the record operation `word`.
std::shared_ptr<const RecordSource> Dataset::records_for(std::string_view word) const {
  if (description_->shuffled || global_batch() > 0 || mixup_alpha() > 0)
    throw Error(
        ErrorCategory::input, word,
        "expected a call before shuffle(), mixup() and batch(), because it selects records by id",
        fmt::format("it was called after {}()", description_->shuffled ? "shuffle"
                                                : mixup_alpha() > 0    ? "mixup"
                                                                       : "batch"));
  if (description_->is_plain()) return description_->source;
  return std::make_shared<PreparedSource>(*description_);
}

Dataset Dataset::with_records(std::shared_ptr<const RecordSource> source) const {
  Description changed = {};
  changed.spec = source->spec();
  changed.source = std::move(source);
  changed.prefetch = description_->prefetch;
  changed.policy = description_->policy;
  changed.bad_records = description_->bad_records;
  return Dataset(std::make_shared<const Description>(std::move(changed)));
}

/// The `count` of take() or skip(), at most the number of records.
std::int64_t Dataset::limited(std::int64_t count, std::string_view word) const {
  if (count < -1)
    throw Error(ErrorCategory::input, word, "expected 0 or more records, or -1 for all",
                fmt::format("got {}", count));
  return count < 0 ? size() : std::min(count, size());
}

Dataset Dataset::take(std::int64_t count) const {
  const std::int64_t end = limited(count, "take");
  auto records = records_for("take");
  return with_records(std::make_shared<RangeSource>(std::move(records), Range{0, end},
                                                    fmt::format("the first {} records", end)));
}

Dataset Dataset::skip(std::int64_t count) const {
  const std::int64_t begin = limited(count, "skip");
  auto records = records_for("skip");
  return with_records(
      std::make_shared<RangeSource>(std::move(records), Range{begin, size()},
                                    fmt::format("without the first {} records", begin)));
}

Dataset Dataset::repeat(std::int64_t times) const {
  return with_records(std::make_shared<RepeatedSource>(records_for("repeat"), times));
}

Dataset Dataset::concatenate(const Dataset& other) const {
  return with_records(std::make_shared<ConcatenatedSource>(
      std::vector{records_for("concatenate"), other.records_for("concatenate")}));
}

Dataset Dataset::filter(const SamplePredicate& keep, int threads) const {
  if (threads < 0)
    throw Error(ErrorCategory::input, "filter", "expected 0 or more threads",
                fmt::format("got {}", threads));
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return with_records(
      std::make_shared<FilteredSource>(records_for("filter"), keep, threads == 0 ? all : threads));
}

Dataset Dataset::split(const SplitSelection& selection) const {
  return with_records(std::make_shared<SplitSource>(records_for("split"), selection));
}

Dataset Dataset::pad(std::string_view name, std::int64_t length) const {
  return with_records(std::make_shared<PaddedSource>(records_for("pad"), name, length));
}

Dataset Dataset::autoencode() const {
  return with_records(std::make_shared<AutoencodedSource>(records_for("autoencode")));
}

Dataset Dataset::cache() const {
  return with_records(
      std::make_shared<CachedSource>(records_for("cache"), available_host_memory()));
}

Dataset Dataset::cache(const std::filesystem::path& file) const {
  return with_records(std::make_shared<CachedSource>(records_for("cache"), file));
}

/// This data set after `change(description)`.
template <typename Change>
Dataset Dataset::with(Change change) const {
  Description changed = *description_;
  change(changed);
  return Dataset(std::make_shared<const Description>(std::move(changed)));
}

Dataset Dataset::images(const ImageRecipe& recipe) const {
  if (!source().info().has_images)
    throw Error(ErrorCategory::input, "images", "expected image records",
                "the records of " + description() + " are not images");
  const std::vector<std::int64_t>& stored = source().spec().shape();
  if (!source().info().has_encoded_images &&
      (stored.size() != 3 || stored.back() != recipe.channels))
    throw Error(
        ErrorCategory::input, "images",
        fmt::format("expected images [H, W, {}] for the recipe {}", recipe.channels, recipe.name),
        fmt::format("the images of {} are [{}]", description(), fmt::join(stored, ", ")));
  return with([&](Description& changed) {
    changed.images = std::make_shared<const ImageTransform>(recipe);
    changed.spec.inputs.front().shape = {recipe.height, recipe.width, recipe.channels};
  });
}

Dataset Dataset::map(SampleMap map) const {
  return with([&](Description& changed) { changed.maps.push_back(std::move(map)); });
}

Dataset Dataset::normalize(const ChannelNormalization& normalization) const {
  const bool has_floats =
      spec().feature_count() > 0 && spec().inputs[0].type == ElementType::float32;
  const std::int64_t channels = has_floats ? spec().shape().back() : 0;
  const auto deviations =
      std::span(normalization.deviation)
          .first(std::clamp(normalization.channels, 0, ChannelNormalization::kMaxChannels));
  if (normalization.channels != channels ||
      !std::ranges::all_of(deviations, [](float d) { return d > 0; })) {
    throw Error(
        ErrorCategory::input, "normalize",
        fmt::format("expected a mean and a deviation above 0 for each of the {} channels",
                    channels),
        fmt::format("got {} deviations: {}", normalization.channels, fmt::join(deviations, ", ")));
  }
  return with([&](Description& changed) { changed.normalization = normalization; });
}

Dataset Dataset::mixup(double alpha) const {
  if (alpha != 0) check_mixup(alpha);
  if (alpha != 0 && spec().classes() == 0)
    throw Error(ErrorCategory::input, "mixup", "expected a data set with classes",
                description() + " has no classes");
  if (alpha != 0 && !spec().is_single())
    throw Error(ErrorCategory::input, "mixup", "expected one input and one label, without weights",
                "got " + to_string(spec()));
  return with([&](Description& changed) { changed.mixup_alpha = alpha; });
}

Dataset Dataset::shuffle() const {
  return with([&](Description& changed) { changed.shuffled = true; });
}

Dataset Dataset::batch(std::int64_t global_batch) const {
  if (global_batch < 1) {
    throw Error(ErrorCategory::input, "batch", "expected a global batch of at least 1 sample",
                fmt::format("got {}", global_batch));
  }
  return with([&](Description& changed) { changed.global_batch = global_batch; });
}

Dataset Dataset::shard(ShardPolicy policy) const {
  return with([&](Description& changed) { changed.policy = policy; });
}

Dataset Dataset::skip_bad_records(std::int64_t limit) const {
  if (limit < 0)
    throw Error(ErrorCategory::input, "bad records", "expected a limit of 0 or more",
                fmt::format("got {}", limit));
  return with([&](Description& changed) { changed.bad_records = limit; });
}

Dataset Dataset::with_classes(std::vector<std::string> names) const {
  return with([&](Description& changed) {
    changed.source = std::make_shared<RenumberedSource>(description_->source, std::move(names));
    changed.spec.targets = changed.source->spec().targets;
  });
}

Dataset Dataset::prefetch(int batches) const {
  if (batches < 1)
    throw Error(ErrorCategory::input, "prefetch", "expected at least 1 batch",
                fmt::format("got {}", batches));
  return with([&](Description& changed) { changed.prefetch = batches; });
}

const SampleSpec& Dataset::spec() const { return description_->spec; }
std::int64_t Dataset::size() const { return description_->source->size(); }
std::int64_t Dataset::global_batch() const { return description_->global_batch; }
std::int64_t Dataset::steps_per_epoch(ReplicaLayout layout) const {
  return global_batch() == 0 ? 0 : Sharding(*description_, layout).plan().steps_per_epoch();
}
double Dataset::mixup_alpha() const { return description_->mixup_alpha; }
ShardPolicy Dataset::shard_policy() const { return description_->policy; }
std::optional<std::int64_t> Dataset::bad_records_allowed() const {
  return description_->bad_records;
}
std::string Dataset::order(ReplicaLayout layout) const {
  return Sharding(*description_, layout).order();
}
std::vector<WorkerShare> Dataset::shares(ReplicaLayout layout, std::uint64_t seed,
                                         std::int64_t epoch) const {
  if (global_batch() == 0) return {};
  return Sharding(*description_, layout).shares(seed, epoch);
}
std::string Dataset::description() const {
  return source().info().description + description_->preparation();
}

std::string Dataset::preparation() const {
  return source().info().preparation + description_->preparation();
}
RecordChanges Dataset::changes() const { return description_->changes(); }
const RecordSource& Dataset::source() const { return *description_->source; }

std::unique_ptr<BatchStream> Dataset::stream(const StreamOptions& options) const {
  const auto require = [&](bool condition, std::string_view expected, std::int64_t actual) {
    if (!condition)
      throw Error(ErrorCategory::input, "stream", expected, fmt::format("got {}", actual));
  };
  if (global_batch() == 0) {
    throw Error(ErrorCategory::input, "stream", "expected a data set grouped into batches",
                "call batch() first");
  }
  if (size() == 0)
    throw Error(ErrorCategory::data, description(), "expected at least one record",
                "the data set is empty");
  require(options.first_step >= 0, "expected a first step of 0 or more", options.first_step);
  require(options.replicas >= 1, "expected at least 1 replica", options.replicas);
  require(options.local_replicas >= 1, "expected at least 1 local replica", options.local_replicas);
  require(options.first_replica >= 0 &&
              options.first_replica <= options.replicas - options.local_replicas,
          fmt::format("expected a first replica that leaves room for {} local replicas of {}",
                      options.local_replicas, options.replicas),
          options.first_replica);
  require(options.prefetch >= 1, "expected a prefetch of at least 1 batch", options.prefetch);
  require(options.threads >= 1, "expected at least 1 thread", options.threads);
  require(options.prefetch_bytes >= 1, "expected at least 1 byte for batches read ahead",
          options.prefetch_bytes);
  StreamOptions chosen = options;
  if (description_->prefetch > 0) chosen.prefetch = description_->prefetch;
  return std::make_unique<PrefetchStream>(*description_, chosen);
}

}  // namespace lockstep::inline v0::data
