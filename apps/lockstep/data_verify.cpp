#include "apps/lockstep/data_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "apps/lockstep/process_setup.h"
#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/record/feature_view.h"
#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/record/tfrecord.h"
#include "lockstep/data/source/dataset_json.h"
#include "lockstep/data/source/example_decoder.h"
#include "lockstep/data/source/tfrecord_source.h"

namespace lockstep::apps {
namespace {

constexpr std::int64_t kProgressEvery = 1000;

/// Faults of one file, printed as they are found.
struct FileReport {
  std::int64_t records = 0;
  std::int64_t images = 0;  // that were decoded
  std::int64_t faults = 0;
  std::string first_fault;

  void add(const Error& error) {
    fmt::print("{}\n", error.what());
    if (faults++ == 0) first_fault = error.what();
  }
};

/// Decodes the images of records: values that start like a JPEG or PNG file, and every value of the
/// usual feature.
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
      report.add(
          Error(ErrorCategory::data, location.text(), "expected a tf.train.Example", error.what()));
    }
  }

 private:
  static constexpr std::string_view kUsualFeature = "image/encoded";

  void decode(std::string_view value, std::string_view name, const data::RecordLocation& location,
              FileReport& report) {
    try {
      const data::ImageHeader header =
          decoder_.open({reinterpret_cast<const std::uint8_t*>(value.data()), value.size()});
      decoder_.decode(header.channels == 1 ? 1 : 3);
      ++report.images;
    } catch (const Error& error) {
      report.add(Error(ErrorCategory::data, location.text(),
                       fmt::format("expected an intact image in {}", name), error.what()));
    }
  }

  data::ImageDecoder decoder_;
};

FileReport verify_file(const std::filesystem::path& path, ImageCheck* images) {
  FileReport report;
  DataProgress progress(path.filename().string(), 0);
  try {
    data::TFRecordReader reader(path);
    for (bool more = true; more;) {
      try {
        std::string_view record;
        more = reader.next(record);
        if (more && images != nullptr) images->add(record, reader.location(), report);
      } catch (const data::RecordError& error) {
        report.add(error);
      }
      report.records = reader.records_read();
      if (report.records % (images != nullptr ? kProgressEvery / 10 : kProgressEvery) == 0)
        progress.show(report.records);
    }
  } catch (const Error& error) {
    report.add(error);
  }
  return report;
}

/// Compares the numbers of records with those in the directories' dataset.json; one line per
/// difference.
std::vector<std::string> compare_with_descriptions(
    const std::map<std::filesystem::path, std::int64_t>& records_of) {
  std::map<std::filesystem::path, data::DatasetDescription> descriptions;
  for (const auto& [file, records] : records_of) {
    const auto directory = file.parent_path();
    if (descriptions.count(directory) != 0) continue;
    descriptions[directory] =
        data::read_dataset_json(directory).value_or(data::DatasetDescription{});
  }
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

std::vector<std::filesystem::path> files_of(const std::vector<std::string>& arguments) {
  std::vector<std::filesystem::path> files;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    const auto description = std::filesystem::is_directory(argument, ignored)
                                 ? data::read_dataset_json(argument)
                                 : std::optional<data::DatasetDescription>();
    if (!description) {
      const auto matching = data::matching_files({argument});
      files.insert(files.end(), matching.begin(), matching.end());
      continue;
    }
    for (const auto& [name, part] : *description) {
      data::require_complete(argument, fmt::format("the part {}", name), part);
      for (const std::string& file : part.files)
        files.push_back(std::filesystem::path(argument) / file);
    }
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

void verify_data(const std::vector<std::string>& arguments, bool decode_images) {
  ImageCheck images;
  std::map<std::filesystem::path, std::int64_t> records_of;
  std::int64_t faults = 0;
  std::int64_t damaged_files = 0;
  std::string first_fault;
  for (const auto& file : files_of(arguments)) {
    const FileReport report = verify_file(file, decode_images ? &images : nullptr);
    fmt::print("{}: {} records, {}{}\n", file.string(), report.records,
               decode_images ? fmt::format("{} images, ", report.images) : "",
               report.faults == 0 ? "intact" : fmt::format("{} damaged", report.faults));
    records_of[file] = report.records;
    if (report.faults > 0 && damaged_files++ == 0) first_fault = report.first_fault;
    faults += report.faults;
  }
  const auto differences = compare_with_descriptions(records_of);
  for (const std::string& difference : differences) fmt::print("{}\n", difference);
  if (first_fault.empty() && !differences.empty()) first_fault = differences.front();
  if (faults + static_cast<std::int64_t>(differences.size()) == 0) return;
  throw Error(ErrorCategory::data, "verify", "expected intact files",
              fmt::format("{} fault{} in {} of {} files; the first: {}",
                          faults + static_cast<std::int64_t>(differences.size()),
                          faults + static_cast<std::int64_t>(differences.size()) == 1 ? "" : "s",
                          damaged_files, records_of.size(), first_fault));
}

void index_data(const std::vector<std::string>& arguments, const std::filesystem::path& index_dir) {
  std::set<std::filesystem::path> cleaned;
  for (const auto& path : files_of(arguments)) {
    const auto index_path = data::record_index_path(path, index_dir);
    const data::RecordFile file(path);
    const auto kept = data::load_record_index(index_path, file.version());
    if (kept && kept->offsets.back() == file.size()) {
      fmt::print("{}: {} records, index up to date\n", path.string(), kept->records());
      continue;
    }
    if (cleaned.insert(index_path.parent_path()).second)
      remove_abandoned_temporaries(index_path.parent_path());
    const data::RecordIndex index = data::build_record_index(file);
    if (!data::save_record_index(index_path, file.version(), index)) {
      throw Error(ErrorCategory::data, index_path.string(),
                  "expected to write the index (--index-dir sets another directory)",
                  "it cannot be written");
    }
    fmt::print("{}: {} records, index written to {}\n", path.string(), index.records(),
               index_path.string());
  }
}

}  // namespace lockstep::apps
