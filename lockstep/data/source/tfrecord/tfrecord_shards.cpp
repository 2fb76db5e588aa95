#include "lockstep/data/source/tfrecord/tfrecord_shards.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/pixels.h"
#include "lockstep/base/system/file_descriptor.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/order/epoch_order.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/tfrecord.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/tfrecord/example_decoder.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::int64_t kProgressEvery = 1000;

std::string shard_name(const ShardOptions& options, int shard) {
  return fmt::format("{}-{:05}-of-{:05}.tfrecord", options.part, shard, options.shards);
}

/// Whether `name` is PART-NNNNN-of-NNNNN.tfrecord.
bool is_shard_of(const std::string& part, std::string_view name) {
  constexpr std::string_view kForm = "-00000-of-00000.tfrecord";
  if (!name.starts_with(part) || name.size() != part.size() + kForm.size()) return false;
  name.remove_prefix(part.size());
  return std::equal(name.begin(), name.end(), kForm.begin(),
                    [](char a, char b) { return b == '0' ? a >= '0' && a <= '9' : a == b; });
}

std::vector<std::filesystem::path> existing_shards(const ShardOptions& options) {
  std::vector<std::filesystem::path> shards;
  for (const auto& entry : std::filesystem::directory_iterator(options.directory)) {
    if (is_shard_of(options.part, entry.path().filename().string())) shards.push_back(entry.path());
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

void prepare_directory(const ShardOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error || !std::filesystem::is_directory(options.directory, error)) {
    throw Error(ErrorCategory::data, options.directory.string(),
                "expected a directory to write shards to",
                error ? error.message() : "it is not a directory");
  }
}

void check_options(const ShardOptions& options) {
  if (options.shards < 1 || options.shards > 99'999) {
    throw Error(ErrorCategory::input, "shards", "expected 1 to 99999 shards",
                fmt::format("got {}", options.shards));
  }
  if (options.part.empty() || options.part.find('/') != std::string::npos) {
    throw Error(ErrorCategory::input, "shards", "expected a part name that can begin a file name",
                fmt::format("got \"{}\"", options.part));
  }
}

/// Class numbers must have the same meaning in all parts.
void check_class_names(const ShardOptions& options, const std::vector<std::string>& names) {
  const auto parts = read_dataset_json(options.directory);
  if (!parts || names.empty()) return;
  for (const auto& [name, part] : *parts)
    if (name != options.part && !part.class_names.empty() && part.class_names != names)
      throw Error(ErrorCategory::data, (options.directory / kDatasetJson).string(),
                  fmt::format("expected the classes of its part {}: {}", name,
                              fmt::join(part.class_names, ", ")),
                  fmt::format("got {}", fmt::join(names, ", ")));
}

/// Whether the options name the Example features: there are one input and one label.
bool has_usual_tensors(const SampleSpec& spec) {
  if (spec.feature_count() == 0) return false;  // ragged
  return spec == SampleSpec::classification(spec.shape(), spec.classes()) ||
         spec == SampleSpec::regression(spec.shape(), spec.target_count());
}

/// Converts samples to records; reuses its buffers.
class SampleEncoder {
 public:
  SampleEncoder(const RecordSource& source, const ShardOptions& options)
      : source_(source),
        options_(options),
        class_names_(source.info().class_names),
        memory_(options.encoding == FeatureEncoding::encoded ? without_image(source.spec())
                                                             : source.spec()),
        sample_(memory_.sample()) {}

  std::string encode(std::int64_t record_id) {
    return options_.encoding == FeatureEncoding::encoded ? encode_image(record_id)
                                                         : encode_features(record_id);
  }

 private:
  std::string encode_features(std::int64_t record_id) {
    sample_.weight = 1;
    source_.read(record_id, sample_);
    Example example;
    if (has_usual_tensors(source_.spec())) {
      example[options_.label_feature] = feature_of(sample_.targets.front());
      example[options_.input_feature] = first_input();
      return serialize_example(example);
    }
    for (const TensorView& input : sample_.inputs)
      example[std::string(input.name)] = feature_of(input);
    for (const TensorView& target : sample_.targets)
      example[std::string(target.name)] = feature_of(target);
    if (source_.info().has_images) example[std::string(sample_.inputs[0].name)] = first_input();
    if (source_.spec().weighted) example[kWeightFeature] = FloatList{sample_.weight};
    return serialize_example(example);
  }

  Feature first_input() const {
    const std::span<const float> features = sample_.features();
    if (options_.encoding == FeatureEncoding::floats) return feature_of(sample_.inputs.front());
    std::string pixels(features.size(), '\0');
    features_to_pixels(features, {reinterpret_cast<std::uint8_t*>(pixels.data()), pixels.size()});
    return BytesList{std::move(pixels)};
  }

  static Feature feature_of(const TensorView& view) {
    const auto list = [](auto values) { return Int64List(values.begin(), values.end()); };
    if (view.type == ElementType::int32) return list(view.as<std::int32_t>());
    if (view.type == ElementType::int64) return list(view.as<std::int64_t>());
    if (view.type == ElementType::bytes) {
      const std::span<const std::string> values = view.as<std::string>();
      return BytesList(values.begin(), values.end());
    }
    if (view.type == ElementType::uint8)
      return BytesList{std::string(reinterpret_cast<const char*>(view.data), view.elements)};
    const std::span<const float> values = view.as<float>();
    return FloatList(values.begin(), values.end());
  }

  std::string encode_image(std::int64_t record_id) {
    ImageHeader header;
    read_with_image(source_, record_id, sample_, image_, [&](const StoredImage& image) {
      LOCKSTEP_CHECK(image.is_encoded);
      // The size as other readers of the file see it. Rejects files without a readable header.
      header = ImageDecoder().open(image.bytes, false);
    });
    const std::span<const std::uint8_t> bytes = image_.bytes;
    Example example;
    example["image/format"] = BytesList{std::string(image_format_name(*image_format_of(bytes)))};
    example["image/height"] = Int64List{header.height};
    example["image/width"] = Int64List{header.width};
    example["image/channels"] = Int64List{header.channels};
    example[options_.label_feature] = feature_of(sample_.targets.front());
    if (!class_names_.empty())
      example["image/class/text"] = BytesList{class_names_[sample_.label()]};
    example[options_.input_feature] = BytesList{std::string(bytes.begin(), bytes.end())};
    return serialize_example(example);
  }

  static SampleSpec without_image(SampleSpec spec) {
    spec.inputs.front().shape = {0};
    return spec;
  }

  const RecordSource& source_;
  const ShardOptions& options_;
  std::vector<std::string> class_names_;
  Batch memory_;
  Sample sample_;
  StoredImage image_;
};

/// Makes the names in `directory` durable, so that a power failure cannot lose an earlier change
/// but keep a later one.
void sync_directory(const std::filesystem::path& directory) {
  const FileDescriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: fsync is not supported here
  if (!file.is_open() || (::fsync(file.get()) != 0 && errno != EINVAL))
    throw Error(ErrorCategory::data, directory.string(), "expected a directory that can be synced",
                std::generic_category().message(errno));
}

/// Renames the shards to their final names. Until all are renamed, dataset.json marks the part as
/// incomplete, so that an interruption leaves no mixture of old and new shards that is readable as
/// one data set.
void publish_shards(const ShardOptions& options,
                    const std::vector<std::filesystem::path>& old_shards,
                    const std::vector<std::unique_ptr<TFRecordWriter>>& writers,
                    const PartDescription& part) {
  check_dataset_part(options.directory, options.part, part);
  PartDescription incomplete;
  incomplete.files = part.files;
  incomplete.is_complete = false;
  for (const auto& shard : old_shards) incomplete.files.push_back(shard.filename().string());
  write_dataset_part(options.directory, options.part, incomplete);
  sync_directory(options.directory);
  for (const auto& writer : writers) writer->publish();
  for (const auto& old_shard : old_shards)
    if (std::find(part.files.begin(), part.files.end(), old_shard.filename().string()) ==
        part.files.end())
      std::filesystem::remove(old_shard);
  sync_directory(options.directory);
  write_dataset_part(options.directory, options.part, part);
  sync_directory(options.directory);
}

std::unique_ptr<TFRecordWriter> write_shard(const RecordSource& source, const ShardOptions& options,
                                            int shard, const Progress& progress) {
  SampleEncoder encoder(source, options);
  auto writer = std::make_unique<TFRecordWriter>(options.directory / shard_name(options, shard),
                                                 options.compression);
  const Range records = split(source.size(), options.shards, shard);
  std::optional<Permutation> order;
  if (options.shuffle && source.size() > 0)
    order.emplace(random_key(*options.shuffle, "order of shards"), source.size());
  for (std::int64_t record = records.begin; record < records.end; ++record) {
    writer->write(encoder.encode(order ? (*order)[record] : record));
    if (progress && (record + 1) % kProgressEvery == 0) progress(record + 1);
  }
  writer->finish();
  return writer;
}

}  // namespace

PartDescription write_shards(const RecordSource& source, const ShardOptions& options,
                             const Progress& progress) {
  check_options(options);
  prepare_directory(options);
  check_class_names(options, source.info().class_names);
  remove_abandoned_temporaries(options.directory);
  const auto old_shards = existing_shards(options);
  if (!old_shards.empty() && !options.overwrite) {
    throw Error(
        ErrorCategory::input, options.directory.string(),
        fmt::format("expected a directory without shards of {}, or --overwrite", options.part),
        fmt::format("it has {}", old_shards.front().filename().string()));
  }
  const bool is_encoded =
      options.encoding == FeatureEncoding::encoded;  // each image then has its own shape
  const bool is_usual = has_usual_tensors(source.spec());
  if (is_encoded && !is_usual)
    throw Error(ErrorCategory::input, "shards",
                "expected images with one label, whose files are kept",
                fmt::format("got {}", to_string(source.spec())));
  PartDescription part{.records = source.size(),
                       .input_feature = options.input_feature,
                       .label_feature = options.label_feature,
                       .shape = is_encoded ? std::vector<std::int64_t>{} : source.spec().shape(),
                       .classes = source.spec().classes(),
                       .class_names = source.info().class_names,
                       .feature_names = source.info().feature_names,
                       .target_names = source.info().target_names,
                       .tensors = is_usual ? SampleSpec() : source.spec()};
  if (const auto text = source.info().text) part.text = *text;
  if (!is_usual) {
    part.input_feature = source.spec().inputs.front().name;
    part.label_feature = source.spec().targets.empty() ? "" : source.spec().targets.front().name;
  }
  std::vector<std::unique_ptr<TFRecordWriter>> writers;
  for (int shard = 0; shard < options.shards; ++shard) {
    writers.push_back(write_shard(source, options, shard, progress));
    part.files.push_back(shard_name(options, shard));
  }
  publish_shards(options, old_shards, writers, part);
  return part;
}

}  // namespace lockstep::inline v0::data
