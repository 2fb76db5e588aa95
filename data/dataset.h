// A data set described as a chain of steps, and the stream of batches it gives to one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/image/recipe.h"
#include "data/order/batch_plan.h"
#include "data/order/shard_policy.h"
#include "data/pipeline/bad_records.h"
#include "data/sample.h"
#include "data/source/csv_options.h"
#include "data/source/memory_source.h"
#include "device/pixels.h"

namespace lockstep::data {

/// One replica's part of one global batch.
struct Batch {
  std::int64_t step = 0;   ///< step since the start of training (epoch * steps_per_epoch + step within the epoch)
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t first_sample = 0;         ///< position of this part's first sample in the global batch
  std::int64_t samples = 0;              ///< of this part; may be 0
  std::int64_t global_samples = 0;       ///< of the whole global batch: the batch size, or less for the ragged last one
  std::vector<std::int64_t> record_ids;  ///< [samples]
  std::vector<float> features;           ///< [samples, shape...]
  std::vector<std::uint8_t> pixels;      ///< [samples, shape...] instead of features, where the stream gives pixels
  device::ChannelNormalization normalization;  ///< what is still to be done to the pixels once they are features
  std::vector<std::int32_t> labels;            ///< [samples] where the data set has classes, else empty
  std::vector<float> targets;                  ///< [samples, targets] where it has targets, else empty
  std::vector<std::int32_t> partner_labels;    ///< [samples] where samples are mixed in pairs, else empty
  std::vector<float> label_weights;  ///< [samples] likewise: of `labels`; the rest is that of `partner_labels`
};

/// Which part of which batches one process reads.
struct StreamOptions {
  std::uint64_t seed = 1;       ///< keys the shuffle (with the epoch) and the maps
  std::int64_t first_step = 0;  ///< resume: the first step to deliver
  std::int64_t last_step = -1;  ///< the step after the last to deliver; -1 for no end (epoch follows epoch)
  int replicas = 1;             ///< world size
  int first_replica = 0;        ///< number of this process's first replica
  int local_replicas = 1;       ///< replicas of this process
  int prefetch = 2;             ///< global batches read ahead, at most, unless Dataset::prefetch() says how many
  int threads = 1;              ///< background threads that read and map, at most: as many work as are needed
  std::int64_t prefetch_bytes = std::int64_t{1} << 30;  ///< memory of batches read ahead, which may make them fewer;
                                                        ///< one is always
  bool pixels = false;  ///< images of uint8 that no map changes come as pixels, a quarter of the bytes

  /// Where the replicas are, as the order of records wants to know it.
  ReplicaLayout layout() const { return {replicas, local_replicas}; }
};

/// Batches of one process, in step order, made by background threads ahead of their use. Destroying it stops them
/// cleanly at any moment.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// Fills `parts` (one element per local replica, memory reused from call to call) with the next step. False at the
  /// end. Blocks until the step is read. An error of a background thread is thrown at the step it belongs to, after the
  /// steps before it, whatever the number of threads; the stream is of no further use then. Called by one thread.
  virtual bool next(std::vector<Batch>& parts) = 0;
  /// The same if it need not block, else false: now nothing is ready, or all is done, or next() would throw.
  virtual bool next_if_ready(std::vector<Batch>& parts) = 0;
  /// Seconds that next() has waited since the start.
  virtual double seconds_waited() const = 0;
  /// Records that could not be read and were replaced, of those read so far; each once.
  virtual std::vector<BadRecord> bad_records() const = 0;
  /// Background threads that work now, of those that may: fewer where batches were ready long before their use, more
  /// where they were waited for. For the thread that calls next().
  virtual int workers() const = 0;
};

/// Where a TFRecord data set's features are and what they mean. Empty or 0 means: take it from `dataset.json` beside
/// the shards, else from the first record (`image/encoded` or `image`; `image/class/label` or `label`), classes from
/// one scan of the labels.
struct TFRecordOptions {
  std::string input_feature = {};  ///< the feature of each Example with the sample; empty: as described above
  std::string label_feature = {};  ///< the feature with the label
  std::vector<std::int64_t> input_shape = {};  ///< [H, W, C], or the sizes of another kind of sample
  std::int64_t classes = 0;                    ///< number of classes; 0: found as described above
  std::filesystem::path index_dir = {};  ///< where record indexes are kept; empty: beside each file (or in memory where
                                         ///< that cannot be written)
  bool skip_damage = false;  ///< of a file with a damaged length or end, the records before; see RecordSource::damage
};

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
  Dataset normalize(const device::ChannelNormalization& normalization) const;
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
  /// What each worker will read in `epoch`.
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

/// The data set of a `--data` option: a glob of TFRecord files; a directory with a dataset.json, or with
/// folders of images (also as `images:DIRECTORY`);
/// `fashion-mnist[:train|:test]`, looked for in `data_dir`, then where Debian's package puts it;
/// `idx:DIRECTORY[:train|:test]`; `csv:FILE[?label=COLUMN&...]`
/// (CsvOptions::parse); `synthetic:HxWxC:CLASSES:COUNT[:train|:test]`, and
/// `synthetic-images:...` for images of uint8 (source/synthetic_source.h). `part` is used where the text names none.
/// Throws Error (input) for a text that is none of these, Error (data) where files are missing or damaged; both say
/// what to do.
struct DataSpecOptions {
  std::filesystem::path data_dir;  ///< where `fashion-mnist` is looked for first; empty: in Debian's place alone
  std::string part = "train";      ///< which part of it, where the specification does not say: train or test
  TFRecordOptions tfrecord;        ///< for files of TFRecord
  std::uint64_t seed = 1;          ///< of synthetic samples
  std::filesystem::path system_dir = "/usr/share/datasets";  ///< where packages of the system put data sets
};
/// The data set that `spec` names: what `lockstep train --data` takes. Throws Error (data) where it cannot be used.
Dataset open_data(const std::string& spec, const DataSpecOptions& options = {});

/// The files that open_data would read records from, without reading any, in the order of their records; of a directory
/// of images the folders of its classes. Empty for what is made up. A file that a dataset.json names is
/// among them whether it is there or not. Throws Error as open_data does for a text that means nothing and for a glob,
/// a set or a directory that has no files.
std::vector<std::filesystem::path> data_files(const std::string& spec, const DataSpecOptions& options = {});

}  // namespace lockstep::data
