#include "apps/lockstep/data/data_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "apps/lockstep/process_setup.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/record/feature_view.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/record/tfrecord.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"
#include "lockstep/data/source/tfrecord/example_decoder.h"
#include "lockstep/data/source/tfrecord/record_schema.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr std::int64_t kShowEvery = 1000;
/// Number of mismatches printed per file: one wrong column may be wrong in a million rows.
constexpr std::int64_t kMaxMismatchesPrinted = 20;

/// Faults of one file, or of one folder of images, printed as they are found.
struct FileReport {
  std::int64_t files = 1;
  std::int64_t records = 0;
  std::int64_t images = 0;  // number of decoded images
  std::int64_t faults = 0;
  std::int64_t mismatches = 0;
  std::string first_fault;

  void add(const Error& error) {
    fmt::print("{}\n", error.what());
    count(error);
  }
  /// Adds a mismatch of readable data. Only the first kMaxMismatchesPrinted are printed.
  void add_mismatch(const Error& error) {
    if (mismatches++ < kMaxMismatchesPrinted) fmt::print("{}\n", error.what());
    count(error);
  }
  void print_end(const std::string& name, bool with_images) const {
    if (mismatches > kMaxMismatchesPrinted)
      fmt::print("{}: and {} more\n", printable(name), mismatches - kMaxMismatchesPrinted);
    fmt::print("{}: {} records, {}{}\n", printable(name), records,
               with_images ? fmt::format("{} images, ", images) : "",
               faults == 0 ? "intact" : counted(faults, "fault"));
  }

 private:
  void count(const Error& error) {
    if (faults++ == 0) first_fault = error.what();
  }
};

void decode_whole(data::ImageDecoder& decoder, std::span<const std::uint8_t> file) {
  const data::ImageHeader header = decoder.open(file);
  decoder.decode(header.channels == 1 ? 1 : 3);
}

/// The first number that is NaN or infinite: a training would skip the step of that record.
std::optional<data::SampleProblem> not_finite(std::span<const float> values,
                                              const std::string& feature) {
  const auto wrong = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  if (wrong == values.end()) return std::nullopt;
  return data::SampleProblem{
      fmt::format("expected finite numbers in {}", feature),
      fmt::format("number {} of {} is {}", wrong - values.begin() + 1, values.size(), *wrong)};
}

/// Decodes the samples of records as a training does, except for the contents of images.
class SampleCheck {
 public:
  explicit SampleCheck(const data::TFRecordOptions& options) : options_(options) {}

  /// Starts a file that `part` describes, unless null. The files without a description are one data
  /// set: its first record determines the schema of all of them.
  void start_file(const data::PartDescription* part) {
    if (part == nullptr && !part_) return;
    part_.reset();
    if (part != nullptr) {
      part_ = *part;
      part_->files.clear();
    }
    decoder_.reset();
    has_schema_ = true;
  }

  /// Whether a training can use the record, or nothing is known about it; otherwise its problem is
  /// added to the report.
  bool is_usable(std::string_view record, const data::RecordLocation& location,
                 FileReport& report) {
    if (!has_schema_) return true;
    try {
      if (!decoder_) find_decoder(record, location.text());
      sample_.image = &image_;
      image_.is_encoded = false;
      auto problem = decoder_->decode(record, sample_);
      if (!problem) problem = decoder_->check_header(image_);
      if (!problem) problem = not_finite(sample_.features(), decoder_->input_feature());
      if (!problem && !sample_.values().empty())
        problem = not_finite(sample_.values(), decoder_->label_feature());
      if (!problem) return true;
      report.add_mismatch(
          Error(ErrorCategory::data, location.text(), problem->expected, problem->actual));
    } catch (const Error& error) {
      if (error.category() == ErrorCategory::input) {
        // The schema requires options of a training that are not set.
        fmt::print("only checksums are verified: {}\n", error.what());
        has_schema_ = false;
        return true;
      }
      report.add_mismatch(error);
    }
    return false;
  }

 private:
  void find_decoder(std::string_view record, const std::string& where) {
    data::RecordSchema schema = data::find_schema(options_, part_, record, where);
    // Without a description, a training determines the number of classes itself.
    if (schema.counts_labels())
      schema.spec.targets.front().classes = std::numeric_limits<std::int32_t>::max();
    data::SampleSpec read = schema.spec;
    if (schema.input != data::InputKind::floats) read.inputs.front().shape = {0};
    memory_.resize(read, 1);
    sample_ = memory_.sample();
    decoder_.emplace(schema.spec, schema.input, schema.features);
  }

  const data::TFRecordOptions& options_;
  std::optional<data::PartDescription> part_;
  std::optional<data::ExampleDecoder> decoder_;
  bool has_schema_ = true;  // false if the schema cannot be determined
  data::Batch memory_;
  data::Sample sample_;
  data::StoredImage image_;
};

/// Decodes the images of records: values with the signature of JPEG or PNG, and all values of the
/// usual image feature.
class ImageCheck {
 public:
  void add(std::string_view record, const data::RecordLocation& location, FileReport& report) {
    try {
      data::for_each_feature(record, [&](std::string_view name, const data::FeatureView& feature) {
        if (feature.kind() != data::FeatureKind::bytes) return;
        for (const std::string_view value : feature.bytes_list())
          if (name == kUsualFeature || data::encoded_image_kind(value))
            decode(value, name, location, report);
      });
    } catch (const data::MalformedExample& error) {
      report.add_mismatch(
          Error(ErrorCategory::data, location.text(), "expected a tf.train.Example", error.what()));
    }
  }

 private:
  static constexpr std::string_view kUsualFeature = "image/encoded";

  void decode(std::string_view value, std::string_view name, const data::RecordLocation& location,
              FileReport& report) {
    try {
      decode_whole(decoder_, {reinterpret_cast<const std::uint8_t*>(value.data()), value.size()});
      ++report.images;
    } catch (const Error& error) {
      report.add(Error(ErrorCategory::data, location.text(),
                       fmt::format("expected an intact image in {}", name), error.what()));
    }
  }

  data::ImageDecoder decoder_;
};

FileReport verify_file(const std::filesystem::path& path, SampleCheck& samples,
                       ImageCheck* images) {
  FileReport report;
  DataProgress progress(path.filename().string(), 0);
  try {
    data::TFRecordReader reader(path);
    for (bool more = true; more;) {
      try {
        std::string_view record;
        more = reader.next(record);
        if (more && samples.is_usable(record, reader.location(), report) && images != nullptr)
          images->add(record, reader.location(), report);
      } catch (const data::RecordError& error) {
        report.add(error);
      }
      report.records = reader.records_read();
      if (report.records % (images != nullptr ? kShowEvery / 10 : kShowEvery) == 0)
        progress.show(report.records);
    }
  } catch (const Error& error) {
    report.add(error);
  }
  return report;
}

FileReport verify_table(const data::CsvSpec& table) {
  FileReport report;
  report.records =
      data::CsvSource::find_problems(table.file, table.options, [&](const Error& error) {
        if (error.category() == ErrorCategory::input) throw Error(error);
        report.add_mismatch(error);
      });
  return report;
}

/// Reads all records of a data set that is not TFRecord files, and decodes its images.
FileReport verify_records(const data::RecordSource& source) {
  FileReport report;
  const bool encoded = source.info().has_encoded_images;
  if (encoded) report.files = source.size();
  data::SampleSpec spec = source.spec();
  if (encoded) spec.inputs.front().shape = {0};
  data::Batch one(spec);
  data::Sample sample = one.sample();
  data::StoredImage stored;
  data::ImageDecoder decoder;
  DataProgress progress("verify", source.size());
  for (; report.records < source.size(); ++report.records) {
    try {
      if (!encoded) {
        source.read(report.records, sample);
      } else {
        data::read_with_image(
            source, report.records, sample, stored,
            [&](const data::StoredImage& image) { decode_whole(decoder, image.bytes); });
        ++report.images;
      }
    } catch (const Error& error) {
      report.add(error);
    }
    if (report.records % (kShowEvery / 10) == 0) progress.show(report.records);
  }
  return report;
}

/// Verifies a data set in the syntax of --data that is not TFRecord files, and prints the result.
FileReport verify_source(const std::string& argument) {
  constexpr std::string_view kTable = "csv:";
  if (argument.starts_with(kTable)) {
    const auto table = data::CsvSpec::parse(std::string_view(argument).substr(kTable.size()),
                                            "verify " + argument);
    FileReport report = verify_table(table);
    report.print_end(table.file.string(), false);
    return report;
  }
  // With a fixed shape, an unusable first image would be an error before the others are read.
  data::DataSpecOptions any_shape;
  any_shape.tfrecord.input_shape = {1, 1, 3};
  const data::Dataset dataset = data::open_data(argument, any_shape);
  FileReport report = verify_records(dataset.source());
  report.print_end(dataset.description(), dataset.source().info().has_encoded_images);
  return report;
}

using Descriptions = std::map<std::filesystem::path, data::DatasetDescription>;

/// The dataset.json of each directory; empty where there is none.
Descriptions descriptions_of(const std::vector<std::filesystem::path>& files) {
  Descriptions descriptions;
  for (const auto& file : files) {
    const auto directory = file.parent_path();
    if (descriptions.count(directory) != 0) continue;
    descriptions[directory] =
        data::read_dataset_json(directory).value_or(data::DatasetDescription{});
  }
  return descriptions;
}

std::map<std::filesystem::path, const data::PartDescription*> parts_of(
    const Descriptions& descriptions) {
  std::map<std::filesystem::path, const data::PartDescription*> parts;
  for (const auto& [directory, description] : descriptions)
    for (const auto& [name, part] : description)
      for (const std::string& file : part.files) parts.emplace(directory / file, &part);
  return parts;
}

/// Compares the numbers of records with those in the directories' dataset.json; one line per
/// difference.
std::vector<std::string> compare_with_descriptions(
    const std::map<std::filesystem::path, std::int64_t>& records_of,
    const Descriptions& descriptions) {
  std::vector<std::string> differences;
  for (const auto& [directory, description] : descriptions) {
    for (const auto& [name, part] : description) {
      std::int64_t found = 0;
      bool complete = true;
      for (const std::string& file : part.files) {
        const auto records = records_of.find(directory / file);
        complete = complete && records != records_of.end();
        if (records != records_of.end()) found += records->second;
      }
      if (complete && found != part.records) {
        differences.push_back(fmt::format("[{}] expected {} records of {}, got {}",
                                          (directory / data::kDatasetJson).string(), part.records,
                                          name, found));
      }
    }
  }
  return differences;
}

}  // namespace

void verify_data(const VerifyOptions& options) {
  std::int64_t total_files = 0;
  std::int64_t damaged_files = 0;
  std::int64_t faults = 0;
  std::string first_fault;
  const auto add = [&](const FileReport& report) {
    if (faults == 0) first_fault = report.first_fault;
    total_files += report.files;
    damaged_files += std::min(report.faults, report.files);
    faults += report.faults;
  };
  std::vector<std::string> patterns;
  for (const std::string& argument : options.files) {
    if (is_data_source(argument))
      add(verify_source(argument));
    else
      patterns.push_back(argument);
  }
  const auto files = files_of(patterns);
  const Descriptions descriptions = descriptions_of(files);
  const auto parts = parts_of(descriptions);
  SampleCheck samples(options.tfrecord);
  ImageCheck images;
  std::map<std::filesystem::path, std::int64_t> records_of;
  for (const auto& file : files) {
    const auto part = parts.find(file);
    samples.start_file(part == parts.end() ? nullptr : part->second);
    const FileReport report = verify_file(file, samples, options.images ? &images : nullptr);
    report.print_end(file.string(), options.images);
    records_of[file] = report.records;
    add(report);
  }
  const auto differences = compare_with_descriptions(records_of, descriptions);
  for (const std::string& difference : differences) fmt::print("{}\n", printable(difference));
  if (first_fault.empty() && !differences.empty()) first_fault = differences.front();
  if (faults + static_cast<std::int64_t>(differences.size()) == 0) return;
  throw Error(ErrorCategory::data, "verify", "expected intact files",
              fmt::format("{} in {} of {} files; the first: {}",
                          counted(faults + static_cast<std::int64_t>(differences.size()), "fault"),
                          damaged_files, total_files, first_fault));
}

}  // namespace lockstep::inline v0::apps
