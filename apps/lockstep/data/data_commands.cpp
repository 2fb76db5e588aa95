#include <fmt/format.h>
#include <spdlog/logger.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/commands.h"
#include "apps/lockstep/data/data_benchmark.h"
#include "apps/lockstep/data/data_tools.h"
#include "apps/lockstep/process_setup.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "lockstep/data/source/idx_source.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/data/source/text_source.h"
#include "lockstep/data/source/tfrecord/tfrecord_shards.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr const char* kFilesHelp =
    "TFRecord files, globs of them, or DIRECTORY[:PART] with a dataset.json";
constexpr const char* kDataSetsHelp =
    "TFRecord files, globs of them, or DIRECTORY[:PART] with a dataset.json; or a data set as for "
    "--data: csv:FILE, images:DIRECTORY, idx:DIRECTORY...";

enum class ConvertSource { idx, csv, images, text };

struct ConvertOptions {
  ConvertSource source = ConvertSource::idx;
  std::string input;
  data::ShardOptions shards;
};

std::unique_ptr<data::CsvSource> open_table(const ConvertOptions& options) {
  const std::string where = "--input " + options.input;
  data::CsvSpec table = data::CsvSpec::parse(options.input, where);
  if (!table.options.scale) table.options.scale = data::ColumnScale::none;  // shards are as stored
  table.options.infers = false;  // other parts would be read otherwise
  auto source = std::make_unique<data::CsvSource>(table.file, table.options);
  if (options.shards.part == "test" && source->infers_schema())
    throw Error(
        ErrorCategory::input, where,
        "expected like=FILE, the training table that defines the numbers of categorical values",
        "there is none");
  for (const std::string& warning : source->info().table->warnings()) make_logger()->warn(warning);
  return source;
}

/// Read as the other parts in the directory, if there are some.
std::unique_ptr<data::TextSource> open_text(const ConvertOptions& options) {
  data::TextSpec text = data::TextSpec::parse(options.input, "--input " + options.input);
  if (const auto parts = data::read_dataset_json(options.shards.directory))
    for (const auto& [name, part] : *parts)
      if (name != options.shards.part && part.text)
        text.options.schema = std::make_shared<const data::TextSchema>(*part.text);
  return std::make_unique<data::TextSource>(data::matching_files({text.files}),
                                            std::move(text.options));
}

/// Writes the shards and prints a summary on standard output. IDX images become raw bytes in
/// `image`, table rows become floats in `features`, both with an integer `label`, or with the
/// targets of a table as floats in `label`; text becomes integers in `tokens` and `next`. JPEG and
/// PNG files are copied unchanged to `image/encoded`, in an order that mixes the classes. Throws
/// Error.
void convert_data(const ConvertOptions& options) {
  data::ShardOptions shards = options.shards;
  std::unique_ptr<data::RecordSource> source;
  if (options.source == ConvertSource::idx) {
    source = std::make_unique<data::IdxSource>(options.input, shards.part);
  } else if (options.source == ConvertSource::images) {
    auto images = std::make_unique<data::ImageFolderSource>(options.input);
    if (const auto part = images->likely_part())
      throw Error(ErrorCategory::input, "--input " + options.input,
                  "expected a folder for each class, as in " + part->string(),
                  "the folders look like parts of a data set");
    source = std::move(images);
    shards.encoding = data::FeatureEncoding::encoded;
    shards.input_feature = "image/encoded";
    shards.label_feature = "image/class/label";
    // Otherwise a reader with a small shuffle buffer would read one class at a time.
    if (!shards.shuffle) shards.shuffle = 1;
  } else if (options.source == ConvertSource::text) {
    source = open_text(options);
  } else {
    source = open_table(options);
    shards.encoding = data::FeatureEncoding::floats;
    shards.input_feature = "features";
  }

  data::PartDescription part;
  {
    DataProgress progress("convert", source->size());
    part =
        data::write_shards(*source, shards, [&](std::int64_t records) { progress.show(records); });
  }
  const std::string last = part.files.size() == 1 ? "" : " to " + part.files.back();
  fmt::print("{} of {} in {}: {}{}, described in {}\n", counted(part.records, "record"),
             printable(shards.part), counted(part.files.size(), "file"),
             printable((shards.directory / part.files.front()).native()), printable(last),
             data::kDatasetJson);
}

void add_convert_command(CLI::App& convert, const char* name, const char* help,
                         const char* input_help, ConvertSource source) {
  auto options = std::make_shared<ConvertOptions>();
  options->source = source;
  CLI::App* command = convert.add_subcommand(name, help);
  command->add_option("--input", options->input, input_help)->type_name("PATH")->required();
  const std::vector<BoundField> fields = fields_of(options->shards);
  const bool is_shuffled = source == ConvertSource::images;
  add_fields(*command, is_shuffled ? fields : fields_without(fields, {"seed"}));
  command->get_option("--output")->required();
  command->callback([options, prefix = name + std::string(":")] {
    if (options->input.starts_with(prefix)) options->input.erase(0, prefix.size());
    convert_data(*options);
  });
}

void add_index_command(CLI::App& data) {
  auto options = std::make_shared<IndexOptions>();
  CLI::App* command = data.add_subcommand(
      "index", "Write an index of record offsets for each file that has no valid one");
  command->add_option("files", options->files, kFilesHelp)->type_name("")->required();
  add_fields(*command, fields_of(*options));
  command->callback([options] { index_data(*options); });
}

void add_inspect_command(CLI::App& data) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = data.add_subcommand(
      "inspect", "Print files, records, features with their kinds and ranges, and label counts");
  command->add_option("files", options->files, kDataSetsHelp)->type_name("")->required();
  add_fields(*command, fields_of(*options));
  command->callback([options] { inspect_data(*options); });
}

void add_verify_command(CLI::App& data) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = data.add_subcommand(
      "verify",
      "Find what a training would stop on: damaged records, missing or mismatching features, "
      "labels out of range, NaN and infinity, fields of tables, images in folders that cannot be "
      "decoded");
  command->add_option("files", options->files, kDataSetsHelp)->type_name("")->required();
  add_fields(*command, fields_with(fields_of(*options), {"images", "input_feature", "label_feature",
                                                         "input_shape", "classes"}));
  command->callback([options] { verify_data(*options); });
}

void add_benchmark_command(CLI::App& data) {
  auto options = std::make_shared<DataBenchmarkOptions>();
  CLI::App* command = data.add_subcommand(
      "benchmark", "Time batches with and without reading and decoding, and report the bottleneck");
  command->get_help_ptr()->group(kCommonOptions);
  add_fields(*command, fields_of(*options));
  add_output_options(*command, options->output,
                     "Print only warnings, errors, notes and the bottleneck");
  command->callback([options] { benchmark_data(*options); });
}

}  // namespace

void add_data_commands(CLI::App& program) {
  CLI::App* data =
      program.add_subcommand("data", "Convert, index, inspect, verify and benchmark data sets");
  data->require_subcommand(1);
  CLI::App* convert = data->add_subcommand(
      "convert", "Write a data set as TFRecord shards, with a dataset.json that describes them");
  convert->require_subcommand(1);
  add_convert_command(*convert, "idx", "Convert IDX files, named as MNIST's, plain or gzip",
                      "Directory of the IDX files", ConvertSource::idx);
  add_convert_command(*convert, "csv", "Convert a table of numerical and categorical columns",
                      "FILE, or FILE:OPTIONS as in --data csv:FILE:OPTIONS", ConvertSource::csv);
  add_convert_command(*convert, "images",
                      "Convert JPEG and PNG files; the images are not re-encoded",
                      "Directory with one folder of images per class", ConvertSource::images);
  add_convert_command(*convert, "text", "Convert text files to tokens",
                      "FILES, or FILES:OPTIONS as in --data text:FILES:OPTIONS",
                      ConvertSource::text);
  add_index_command(*data);
  add_inspect_command(*data);
  add_verify_command(*data);
  add_benchmark_command(*data);
}

}  // namespace lockstep::inline v0::apps
