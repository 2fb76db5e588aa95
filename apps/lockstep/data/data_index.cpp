// TFRecord files of commands, and their indexes.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>

#include "apps/lockstep/data/data_tools.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/printable.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"

namespace lockstep::inline v0::apps {

std::vector<std::filesystem::path> files_of(const std::vector<std::string>& arguments) {
  std::vector<std::filesystem::path> files;
  for (const std::string& argument : arguments) {
    if (data::names_part(argument)) {
      const auto part_files = data::data_files(argument);
      files.insert(files.end(), part_files.begin(), part_files.end());
      continue;
    }
    std::error_code ignored;
    const auto description = std::filesystem::is_directory(argument, ignored)
                                 ? data::read_dataset_json(argument)
                                 : std::optional<data::DatasetDescription>();
    if (!description) {
      data::refuse_other_formats(argument);
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

void index_data(const IndexOptions& options) {
  std::set<std::filesystem::path> cleaned;
  for (const auto& path : files_of(options.files)) {
    const auto index_path = data::record_index_path(path, options.index_dir);
    data::RecordFile file(path);
    const auto kept = data::load_record_index(index_path, file.version());
    if (kept && file.accepts_size(kept->offsets.back())) {
      fmt::print("{}: {} records, index up to date\n", printable(path.native()), kept->records());
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
    fmt::print("{}: {} records, index written to {}\n", printable(path.native()), index.records(),
               printable(index_path.native()));
  }
}

}  // namespace lockstep::inline v0::apps
