// A data set described as a chain of steps, and the stream of batches it gives to one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/image/recipe.h"
#include "data/sample.h"
#include "device/pixels.h"

namespace lockstep::data {

/// One replica's part of one global batch.
struct Batch {
  std::int64_t step = 0;  ///< step since the start of training (epoch * steps_per_epoch + step within the epoch)
  std::int64_t epoch = 0;
  std::int64_t first_sample = 0;         ///< position of this part's first sample in the global batch
  std::int64_t samples = 0;              ///< of this part; may be 0
  std::int64_t global_samples = 0;       ///< of the whole global batch: the batch size, or less for the ragged last one
  std::vector<std::int64_t> record_ids;  ///< [samples]
  std::vector<float> features;           ///< [samples, shape...]
  std::vector<std::uint8_t> pixels;      ///< [samples, shape...] instead of features, where the stream gives pixels
  device::ChannelNormalization normalization;  ///< what is still to be done to the pixels once they are features
  std::vector<std::int32_t> labels;            ///< [samples] where the data set has classes, else empty
  std::vector<float> targets;                  ///< [samples, targets] where it has targets, else empty
};

/// Which part of which batches one process reads.
struct StreamOptions {
  std::uint64_t seed = 1;       ///< keys the shuffle (with the epoch) and the maps
  std::int64_t first_step = 0;  ///< resume: the first step to deliver
  std::int64_t last_step = -1;  ///< the step after the last to deliver; -1 for no end (epoch follows epoch)
  int replicas = 1;             ///< world size
  int first_replica = 0;        ///< number of this process's first replica
  int local_replicas = 1;       ///< replicas of this process
  int prefetch = 2;             ///< global batches read ahead, at most
  int threads = 1;              ///< background threads that read and map
  bool pixels = false;          ///< images of uint8 that no map changes come as pixels, a quarter of the bytes
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
};

/// Where a TFRecord data set's features are and what they mean. Empty or 0 means: take it from `dataset.json` beside
/// the shards, else from the first record (`image/encoded` or `image`; `image/class/label` or `label`), classes from
/// one scan of the labels.
struct TFRecordOptions {
  std::string input_feature = {};
  std::string label_feature = {};
  std::vector<std::int64_t> input_shape = {};
  std::int64_t classes = 0;
  std::filesystem::path index_dir = {};  ///< where record indexes are kept; empty: beside each file (or in memory where
                                         ///< that cannot be written)
  bool skip_damage = false;  ///< of a file with a damaged length or end, the records before; see RecordSource::damage
};

/// A description of a data set; a cheap value. Nothing is read before stream() but headers and indexes.
class Dataset {
 public:
  /// All TFRecord files that match `glob` (plain, gzip or zlib, found by content), in the order of their names.
  static Dataset from_tfrecords(const std::string& glob, const TFRecordOptions& options = {});
  /// The `train` or `test` part of an IDX data set (files named as MNIST's, gzip or not) in `directory`.
  static Dataset from_idx(const std::filesystem::path& directory, const std::string& part);
  /// Numeric columns, header line optional, label (a class number) in the last column.
  static Dataset from_csv(const std::filesystem::path& file);
  /// Random images with labels that a model can learn; a pure function of (seed, record id).
  /// Another `part` has other samples of the same classes.
  static Dataset synthetic(std::vector<std::int64_t> shape, std::int64_t classes, std::int64_t count,
                           std::uint64_t seed = 1, const std::string& part = "train");
  static Dataset from_source(std::shared_ptr<const RecordSource> source);

  /// Makes every image what `recipe` says, before all maps. Throws Error (input) where the records are no images, or
  /// the recipe makes no sense.
  Dataset images(const ImageRecipe& recipe) const;
  /// Applies `map` to every sample, after the maps before it.
  Dataset map(SampleMap map) const;
  /// Normalizes the features, after all maps: on the device that trains where pixels go there. Throws Error (input)
  /// unless there is one mean and one deviation above 0 for each channel, the last extent of the shape.
  Dataset normalize(const device::ChannelNormalization& normalization) const;
  /// Every epoch in an order of its own: a permutation of all record ids that depends on (seed, epoch) alone. Without
  /// it, id order.
  Dataset shuffle() const;
  /// Groups into global batches of `global_batch` samples; the last one of an epoch may be smaller.
  Dataset batch(std::int64_t global_batch) const;

  const SampleSpec& spec() const;        ///< of the samples
  std::int64_t size() const;             ///< records
  std::int64_t global_batch() const;     ///< 0 before batch()
  std::int64_t steps_per_epoch() const;  ///< size / global_batch, rounded up
  std::string description() const;
  /// ", images cifar10-train, normalized ...": what is done to samples, as far as it can be told; for people, and to
  /// see whether ranks do the same.
  std::string preparation() const;
  const RecordSource& source() const;

  /// Starts reading. Throws Error (input) without batch(), Error (data) for an empty data set.
  std::unique_ptr<BatchStream> stream(const StreamOptions& options) const;

 private:
  struct Description;
  explicit Dataset(std::shared_ptr<const Description> description);
  std::shared_ptr<const Description> description_;
};

/// The data set of a `--data` option: a glob of TFRecord files; a directory with a dataset.json;
/// `fashion-mnist[:train|:test]`, looked for in `data_dir`, then where Debian's package puts it;
/// `idx:DIRECTORY[:train|:test]`; `csv:FILE`; `synthetic:HxWxC:CLASSES:COUNT[:train|:test]`, and
/// `synthetic-images:...` for images of uint8 (source/synthetic_source.h). `part` is used where the text names none.
/// Throws Error (input) for a text that is none of these, Error (data) where files are missing or damaged; both say
/// what to do.
struct DataSpecOptions {
  std::filesystem::path data_dir;
  std::string part = "train";
  TFRecordOptions tfrecord;
  std::uint64_t seed = 1;
  std::filesystem::path system_dir = "/usr/share/datasets";  ///< where packages of the system put data sets
};
Dataset open_data(const std::string& spec, const DataSpecOptions& options = {});

}  // namespace lockstep::data
