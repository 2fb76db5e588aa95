#include "apps/lockstep/data_convert.h"

#include <fmt/format.h>

#include <memory>

#include "apps/lockstep/data_progress.h"
#include "lockstep/base/error.h"
#include "lockstep/data/source/csv_source.h"
#include "lockstep/data/source/idx_source.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/data/source/tfrecord_shards.h"

namespace lockstep::apps {

namespace {

std::unique_ptr<data::CsvSource> open_table(const ConvertOptions& options) {
  const std::string where = "--input " + options.input;
  const data::CsvSpec table = data::CsvSpec::parse(options.input, where);
  auto source = std::make_unique<data::CsvSource>(table.file, table.options);
  if (options.part == "test" && source->has_words_of_its_own())
    throw Error(ErrorCategory::input, where,
                "expected like=FILE, the training table that defines the numbers of categorical values",
                "there is none");
  return source;
}

}  // namespace

void convert_data(const ConvertOptions& options) {
  data::ShardOptions shards;
  shards.directory = options.output;
  shards.part = options.part;
  shards.shards = options.shards;
  shards.compression = data::compression_from_name(options.compression);
  shards.overwrite = options.overwrite;

  std::unique_ptr<data::RecordSource> source;
  if (options.source == ConvertSource::idx) {
    source = std::make_unique<data::IdxSource>(options.input, options.part);
  } else if (options.source == ConvertSource::images) {
    source = std::make_unique<data::ImageFolderSource>(options.input);
    shards.encoding = data::FeatureEncoding::encoded;
    shards.input_feature = "image/encoded";
    shards.label_feature = "image/class/label";
    shards.shuffle = options.seed;  // else a reader with a small shuffle buffer would see one class at a time
  } else {
    source = open_table(options);
    shards.encoding = data::FeatureEncoding::floats;
    shards.input_feature = "features";
  }

  data::PartDescription part;
  {
    DataProgress progress("convert", source->size());
    part = data::write_shards(*source, shards, [&](std::int64_t records) { progress.show(records); });
  }
  fmt::print("{} records of {} in {} file{}: {} to {}, described in {}\n", part.records, options.part,
             part.files.size(), part.files.size() == 1 ? "" : "s", (shards.directory / part.files.front()).string(),
             part.files.back(), data::kDatasetJson);
}

}  // namespace lockstep::apps
