// A data set described as a chain of steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/pixels.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/image/recipe.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/sample.h"
#include "lockstep/data/source/csv_options.h"
#include "lockstep/data/source/memory_source.h"
#include "lockstep/data/source/tfrecord_options.h"

namespace lockstep::data {

/// A description of a data set; a cheap value. Nothing is read before stream() but headers and indexes.
///
/// Words on records (take, skip, repeat, concatenate, interleave, filter, cache) stand before shuffle() and batch(),
/// which have the last word on order, and throw Error (input) after them. What stands before such a word is done to the
/// records that it is about: a map there sees their ids, one behind it the ids that the word gives. Every record can be
/// read by its id at any time, whatever the words, so that the position in the data remains the step number.
class Dataset {
 public:
  /// All TFRecord files that match `glob` (plain, gzip or zlib, found by content), in the order of their names.
  static Dataset from_tfrecords(const std::string& glob, const TFRecordOptions& options = {});
  /// The `train` or `test` part of an IDX data set (files named as MNIST's, gzip or not) in `directory`.
  static Dataset from_idx(const std::filesystem::path& directory, const std::string& part);
  /// A table of numbers and words (source/csv_source.h).
  static Dataset from_csv(const std::filesystem::path& file, const CsvOptions& options = {});
  /// JPEG and PNG files in `directory`, in one folder for each class (source/image_folder_source.h). `shape`: [H, W, C]
  /// of images that no recipe changes; empty: that of the first.
  static Dataset from_images(const std::filesystem::path& directory, const std::vector<std::int64_t>& shape = {});
  /// Random images with labels that a model can learn; a pure function of (seed, record id).
  /// Another `part` has other samples of the same classes.
  static Dataset synthetic(std::vector<std::int64_t> shape, std::int64_t classes, std::int64_t count,
                           std::uint64_t seed = 1, const std::string& part = "train");
  /// Samples that the program has: `features` [N, spec.shape...] as floats or as images of uint8, and `labels` [N] or
  /// targets [N, spec.targets] as the spec has classes or targets. Throws Error (input) where sizes do not fit; Error
  /// (data) for a label outside 0 .. classes-1.
  static Dataset from_memory(MemoryFeatures features, MemoryLabels labels, SampleSpec spec);
  /// Samples that a function makes, each from its record id alone. It is no coroutine or iterator, as tf.data's is:
  /// a stream that resumes at step 1000, or one of 64 ranks, asks for its own records and not for those before them.
  static Dataset from_generator(SampleSpec spec, std::int64_t count, SampleGenerator generate);
  /// Blocks of `block_length` records from `cycle_length` of the data sets in turn; one that ends makes room for the
  /// next. The order is that of tf.data (order/interleave_order.h). Throws Error (input) where their samples differ.
  static Dataset interleave(const std::vector<Dataset>& datasets, std::int64_t cycle_length,
                            std::int64_t block_length = 1);
  /// Records of one's own source, read by id; see RecordSource.
  static Dataset from_source(std::shared_ptr<const RecordSource> source);

  /// The first `count` records; all where there are not so many, or for -1.
  Dataset take(std::int64_t count) const;
  /// All but the first `count` records; none where there are not more, or for -1.
  Dataset skip(std::int64_t count) const;
  /// All records `times` times, which then is one epoch. Each time is an epoch of its own for maps and recipes before
  /// this word, and has its own ids for those behind it, so that they choose anew.
  Dataset repeat(std::int64_t times) const;
  /// The records of `other` after those of this data set. Throws Error (input) where their samples differ.
  Dataset concatenate(const Dataset& other) const;
  /// The records that `keep` is true for, looking at their features, label and targets after all that stands before
  /// this word. Unlike tf.data's it reads all records here and now, once, by `threads` threads (0: one for each core),
  /// so that size and order are known; random maps before it choose as in epoch 0 of seed 0. No record may be left, but
  /// then stream() throws. Throws what reading throws, the first in the order of the records.
  Dataset filter(const SamplePredicate& keep, int threads = 0) const;
  /// Makes each record once, when it is first read, and keeps it in memory: pixels where they are images that no map
  /// changes, else floats. As in tf.data, random choices before this word are then the same in every epoch: those of
  /// epoch 0, of seed 0. Throws Error (input) where all records together do not fit into the memory that is free.
  Dataset cache() const;
  /// The same, kept in `file`, which another run can use once it holds all records; until then they lie in a temporary
  /// file beside it. Several processes may share the name. Throws Error (data) where the file is there and is no cache
  /// of these records: it is never removed.
  Dataset cache(const std::filesystem::path& file) const;

  /// Makes every image what `recipe` says, before all maps. Throws Error (input) where the records are no images, or
  /// the recipe makes no sense.
  Dataset images(const ImageRecipe& recipe) const;
  /// Applies `map` to every sample, after the maps before it.
  Dataset map(SampleMap map) const;
  /// Normalizes the features, after all maps: on the device that trains where pixels go there. Throws Error (input)
  /// unless there is one mean and one deviation above 0 for each channel, the last extent of the shape.
  Dataset normalize(const ChannelNormalization& normalization) const;
  /// Mixes every sample with another of its epoch, the partner, after all of the above: pixels or features by a weight
  /// from Beta(alpha, alpha), and both labels count by it in the loss (Zhang et al., "mixup: Beyond empirical risk
  /// minimization", 2018). For training. 0 for none. Throws Error (input) for an alpha below 0 or above 4, and where
  /// the data set has no classes.
  Dataset mixup(double alpha) const;
  /// Every epoch in an order of its own: a permutation of all record ids that depends on (seed, epoch) alone. Without
  /// it, id order.
  Dataset shuffle() const;
  /// Groups into global batches of `global_batch` samples; the last one of an epoch may be smaller.
  Dataset batch(std::int64_t global_batch) const;
  /// Deals records to ranks by `policy`; ShardPolicy::automatic without it.
  Dataset shard(ShardPolicy policy) const;
  /// Puts up with so many records that cannot be read, over all ranks of a training: each is replaced by the next one
  /// that can, by its id, so that batches and steps stay as they are. Without it the first one is an error.
  Dataset skip_bad_records(std::int64_t limit) const;
  /// Reads `batches` global batches ahead, whatever StreamOptions::prefetch says; fewer where they do not fit into
  /// StreamOptions::prefetch_bytes.
  Dataset prefetch(int batches) const;

  const SampleSpec& spec() const;     ///< of the samples
  std::int64_t size() const;          ///< records
  std::int64_t global_batch() const;  ///< 0 before batch()
  /// size / global_batch, rounded up; with policies that give each worker records of its own (file, off), until the
  /// last one is done.
  std::int64_t steps_per_epoch(ReplicaLayout layout = {}) const;
  ShardPolicy shard_policy() const;  ///< how records are divided between ranks
  /// How many records may be bad before reading fails; none where the first one ends it.
  std::optional<std::int64_t> bad_records_allowed() const;
  /// "shuffled in blocks of 84 records and windows of 21504": what must be the same for steps to mean the same records.
  std::string order(ReplicaLayout layout) const;
  /// What every rank reads in one epoch, in rank order: files, records and bytes.
  std::vector<WorkerShare> shares(ReplicaLayout layout, std::uint64_t seed, std::int64_t epoch) const;
  double mixup_alpha() const;       ///< 0: samples are not mixed
  std::string description() const;  ///< where the records come from, for people: "4 TFRecord files in data"
  /// ", images cifar10-train, normalized ...": what is done to samples, as far as it can be told; for people, and to
  /// see whether ranks do the same.
  std::string preparation() const;
  /// The records themselves, by id and without order; lives as long as this object.
  const RecordSource& source() const;

  /// Starts reading. Throws Error (input) without batch(), Error (data) for an empty data set.
  std::unique_ptr<BatchStream> stream(const StreamOptions& options) const;

 private:
  struct Description;
  explicit Dataset(std::shared_ptr<const Description> description);
  std::shared_ptr<const RecordSource> records_for(std::string_view word) const;
  Dataset with_records(std::shared_ptr<const RecordSource> source) const;
  std::shared_ptr<const Description> description_;
};

}  // namespace lockstep::data
