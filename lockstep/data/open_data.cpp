// Parses the text of a `--data` option.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/csv_source.h"
#include "lockstep/data/source/dataset_json.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/source/idx_source.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/data/source/memory_source.h"
#include "lockstep/data/source/tfrecord_source.h"

namespace lockstep::data {
namespace {

constexpr const char* kFashionMnist = "fashion-mnist";
constexpr std::string_view kSynthetic = "synthetic:";
constexpr std::string_view kSyntheticImages = "synthetic-images:";
constexpr const char* kSpecs =
    "a glob of TFRecord files, DIRECTORY[:PART] with a dataset.json, DIRECTORY with folders of "
    "images, fashion-mnist[:train|:test], idx:DIRECTORY[:train|:test], csv:FILE[?OPTIONS], "
    "images:DIRECTORY or synthetic:HxWxC:CLASSES:COUNT[:train|:test] (synthetic-images: the same "
    "in uint8)";

[[noreturn]] void fail_input(const std::string& spec, std::string_view expected,
                             std::string_view actual) {
  throw Error(ErrorCategory::input, "--data " + spec, expected, actual);
}

std::string_view word_of(const std::string& spec) {
  return spec.starts_with(kSyntheticImages) ? kSyntheticImages : kSynthetic;
}

std::int64_t positive_number(const std::string& spec, const std::string& text) {
  const auto value = parse_number<std::int64_t>(text);
  if (!value || *value < 1)
    fail_input(spec,
               fmt::format("expected positive numbers in {}HxWxC:CLASSES:COUNT", word_of(spec)),
               fmt::format("got \"{}\"", text));
  return *value;
}

/// Removes a trailing ":train" or ":test" from `text`.
std::string take_part(std::string& text, const std::string& otherwise) {
  for (const char* part : {"train", "test"}) {
    const std::string ending = std::string(":") + part;
    if (text.ends_with(ending)) {
      text.resize(text.size() - ending.size());
      return part;
    }
  }
  return otherwise;
}

Dataset open_synthetic(const std::string& spec, const DataSpecOptions& options) {
  const std::string_view word = word_of(spec);
  std::string text = spec.substr(word.size());
  const std::string part = take_part(text, options.part);
  const auto pieces = pieces_of(text, ':');
  if (pieces.size() != 3) {
    fail_input(spec, fmt::format("expected {}HxWxC:CLASSES:COUNT", word),
               fmt::format("got {} of the 3 values", text.empty() ? 0 : pieces.size()));
  }
  std::vector<std::int64_t> shape;
  for (const std::string& extent : pieces_of(pieces[0], 'x'))
    shape.push_back(positive_number(spec, extent));
  return Dataset::from_source(std::make_shared<SyntheticSource>(
      SyntheticOptions{.shape = std::move(shape),
                       .classes = positive_number(spec, pieces[1]),
                       .count = positive_number(spec, pieces[2]),
                       .seed = options.seed,
                       .part = part,
                       .images = word == kSyntheticImages}));
}

/// A test set that numbers its categorical values itself would not match the training set.
Dataset open_csv(const std::string& spec, const DataSpecOptions& options) {
  const CsvSpec table = CsvSpec::parse(std::string_view(spec).substr(4), "--data " + spec);
  const auto source = std::make_shared<CsvSource>(table.file, table.options);
  if (options.part == "test" && source->has_words_of_its_own())
    fail_input(
        spec,
        "expected like=FILE, the training table that defines the numbers of categorical values",
        "there is none");
  return Dataset::from_source(source);
}

Dataset open_image_folder(const std::string& directory, const DataSpecOptions& options) {
  Dataset dataset = Dataset::from_images(directory, options.tfrecord.input_shape);
  const std::int64_t classes = options.tfrecord.classes_by_name ? 0 : options.tfrecord.classes;
  if (classes > 0 && dataset.spec().classes != classes)
    throw Error(ErrorCategory::data, directory,
                fmt::format("expected folders of {} classes, including empty ones, because their "
                            "order defines the class numbers",
                            classes),
                fmt::format("there are {}", dataset.spec().classes));
  return dataset;
}

/// The directory of the Fashion-MNIST files.
std::filesystem::path find_fashion_mnist(const std::string& part, const DataSpecOptions& options) {
  std::vector<std::filesystem::path> directories;
  if (!options.data_dir.empty()) directories = {options.data_dir, options.data_dir / kFashionMnist};
  directories.push_back(options.system_dir / kFashionMnist);
  std::string searched;
  for (const auto& directory : directories) {
    if (find_idx_files(directory, part)) return directory;
    searched += (searched.empty() ? "" : ", ") + directory.string();
  }
  throw Error(ErrorCategory::data, fmt::format("--data {}:{}", kFashionMnist, part),
              fmt::format("expected the Fashion-MNIST files in one of {}: install the Debian "
                          "package dataset-fashion-mnist, or set their directory with --data-dir",
                          searched),
              "none of them has the files");
}

Dataset open_fashion_mnist(const std::string& part, const DataSpecOptions& options) {
  return Dataset::from_source(std::make_shared<IdxSource>(
      find_fashion_mnist(part, options), part, fmt::format("{} {}", kFashionMnist, part)));
}

/// A directory, and the part that is read if it has a dataset.json.
struct DirectoryPart {
  std::filesystem::path directory;
  std::string part;
};

/// DIRECTORY, with the part of `options`, or DIRECTORY:PART, where only a dataset.json defines what
/// a part is. nullopt if `spec` is neither.
std::optional<DirectoryPart> directory_part(const std::string& spec,
                                            const DataSpecOptions& options) {
  if (std::error_code ignored; std::filesystem::is_directory(spec, ignored))
    return DirectoryPart{spec, options.part};
  if (!names_part(spec)) return std::nullopt;
  const std::size_t colon = spec.rfind(':');
  return DirectoryPart{spec.substr(0, colon), spec.substr(colon + 1)};
}

[[noreturn]] void fail_without_part(const std::filesystem::path& directory,
                                    const DatasetDescription& parts, const std::string& missing) {
  std::vector<std::string> names;
  for (const auto& [name, part] : parts)
    if (!part.files.empty()) names.push_back(name);
  throw Error(ErrorCategory::data, (directory / kDatasetJson).string(),
              fmt::format("expected files for the part {}", missing),
              names.empty()
                  ? "it lists none"
                  : fmt::format("it lists those of {}; name a part as in {}:{}",
                                fmt::join(names, ", "), directory.string(), names.back()));
}

/// The shards that the dataset.json of a directory lists for a part; nullopt if there is no
/// dataset.json.
std::optional<std::vector<std::filesystem::path>> described_files(const DirectoryPart& wanted) {
  const auto& [directory, named] = wanted;
  const auto parts = read_dataset_json(directory);
  if (!parts) return std::nullopt;
  const auto part = parts->find(named);
  if (part == parts->end() || part->second.files.empty())
    fail_without_part(directory, *parts, named);
  require_complete(directory, fmt::format("the part {}", named), part->second);
  std::vector<std::filesystem::path> files;
  for (const std::string& name : part->second.files) files.push_back(directory / name);
  return files;
}

[[noreturn]] void fail_without_data(const std::filesystem::path& directory) {
  refuse_images_without_class(directory);
  const std::string others = other_files_text(directory);
  throw Error(ErrorCategory::data, directory.string(),
              "expected a glob of files, such as DIRECTORY/train-*.tfrecord, or a directory with a "
              "dataset.json or with folders of images (JPEG or PNG: .jpg, .jpeg, .png)",
              others.empty() ? "the directory has none of these"
                             : "the directory has folders with " + others);
}

Dataset open_described(const DirectoryPart& wanted, const DataSpecOptions& options) {
  const auto& [directory, part] = wanted;
  const auto files = described_files(wanted);
  if (!files && is_image_folder(directory)) return open_image_folder(directory, options);
  if (!files) fail_without_data(directory);
  return Dataset::from_source(std::make_shared<TFRecordSource>(
      *files, options.tfrecord,
      fmt::format("{} {} in {}", part, kDatasetJson, directory.string())));
}

/// Whether the text is probably a file pattern rather than a misspelled data set name.
bool looks_like_files(const std::string& spec) {
  return spec.find_first_of("*?[{/.~") != std::string::npos;
}

void require_files(const std::string& spec) {
  refuse_other_formats(spec);
  std::error_code ignored;
  if (looks_like_files(spec) || std::filesystem::exists(spec, ignored)) return;
  static constexpr std::array<std::string_view, 6> kNames = {
      kFashionMnist, "csv", "idx", "images", "synthetic", "synthetic-images"};
  fail_input(spec, fmt::format("expected {}", kSpecs),
             got_name(spec.substr(0, spec.find(':')), kNames));
}

std::vector<std::filesystem::path> idx_files(const std::filesystem::path& directory,
                                             const std::string& part) {
  const auto files = find_idx_files(directory, part);
  if (!files)
    throw Error(ErrorCategory::data, directory.string(),
                fmt::format("expected the IDX files of the part {}", part), "they are missing");
  return {files->images, files->labels};
}

/// The extension of a file name in lower case, without options after a question mark.
std::string extension_of_name(const std::string& spec) {
  const std::size_t options = spec.find('=') == std::string::npos ? spec.size() : spec.rfind('?');
  std::string extension = std::filesystem::path(spec.substr(0, options)).extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

template <std::size_t N>
bool is_one_of(const std::string& extension, const std::array<const char*, N>& known) {
  return std::ranges::find(known, extension) != known.end();
}

Dataset open_files(const std::string& spec, const DataSpecOptions& options) {
  if (const auto described = directory_part(spec, options))
    return open_described(*described, options);
  require_files(spec);
  return Dataset::from_tfrecords(spec, options.tfrecord);
}

}  // namespace

bool names_part(const std::string& spec) {
  const std::size_t colon = spec.rfind(':');
  std::error_code ignored;
  return colon != std::string::npos && colon > 0 && colon + 1 < spec.size() &&
         std::filesystem::exists(std::filesystem::path(spec.substr(0, colon)) / kDatasetJson,
                                 ignored);
}

void refuse_other_formats(const std::string& spec) {
  static constexpr std::array kTables = {".csv", ".tsv"};
  static constexpr std::array kImages = {".jpg", ".jpeg", ".png"};
  static constexpr std::array kUnread = {".parquet", ".feather", ".arrow", ".jsonl", ".npy",
                                         ".npz",     ".h5",      ".hdf5",  ".xls",   ".xlsx",
                                         ".pkl",     ".pt",      ".zip"};
  const std::string extension = extension_of_name(spec);
  const std::string got = fmt::format("got the name of a {} file", extension);
  const std::filesystem::path path = spec;
  if (is_one_of(extension, kTables))
    fail_input(
        spec,
        fmt::format("expected csv: before the name of a table: csv:{}{}",
                    spec.substr(spec.rfind(':', spec.find('?')) + 1),
                    extension == ".tsv" && spec.find('?') == std::string::npos ? "?sep=tab" : ""),
        got);
  if (is_one_of(extension, kImages))
    fail_input(spec, "expected images:DIRECTORY, with one folder of images per class", got);
  if (path.filename().string().find("-ubyte") != std::string::npos)
    fail_input(spec,
               fmt::format("expected the directory of IDX files: idx:{}",
                           path.has_parent_path() ? path.parent_path().string() : "."),
               "got the name of an IDX file");
  if (path.filename() == kDatasetJson)
    fail_input(spec,
               fmt::format("expected the directory of {}: {}", kDatasetJson,
                           path.has_parent_path() ? path.parent_path().string() : "."),
               "got the file");
  if (is_one_of(extension, kUnread))
    fail_input(spec,
               "expected TFRecord files, a table (csv:FILE) or folders of images "
               "(images:DIRECTORY); write the data in one of these formats first",
               got);
}

Dataset open_data(const std::string& spec, const DataSpecOptions& options) {
  std::string text = spec;
  if (spec.starts_with(kSynthetic) || spec.starts_with(kSyntheticImages))
    return open_synthetic(spec, options);
  if (spec.starts_with("csv:")) return open_csv(spec, options);
  if (spec.starts_with("images:")) return open_image_folder(text.substr(7), options);
  const std::string part = take_part(text, options.part);
  if (text == kFashionMnist) return open_fashion_mnist(part, options);
  if (text.starts_with("idx:")) return Dataset::from_idx(text.substr(4), part);
  if (spec.starts_with(std::string(kFashionMnist) + ":"))
    fail_input(spec, "expected the part train or test",
               "got " + spec.substr(std::string_view(kFashionMnist).size() + 1));
  return open_files(spec, options);
}

std::vector<std::filesystem::path> data_files(const std::string& spec,
                                              const DataSpecOptions& options) {
  std::string text = spec;
  if (spec.starts_with(kSynthetic) || spec.starts_with(kSyntheticImages)) {
    open_synthetic(spec, options);
    return {};
  }
  if (spec.starts_with("csv:"))
    return {CsvSpec::parse(std::string_view(spec).substr(4), "--data " + spec).file};
  if (spec.starts_with("images:")) return class_folders(text.substr(7));
  const std::string part = take_part(text, options.part);
  if (text == kFashionMnist) return idx_files(find_fashion_mnist(part, options), part);
  if (text.starts_with("idx:")) return idx_files(text.substr(4), part);
  if (const auto described = directory_part(spec, options)) {
    if (const auto files = described_files(*described)) return *files;
    if (!is_image_folder(spec)) fail_without_data(spec);
    return class_folders(spec);
  }
  require_files(spec);
  return matching_files({spec});
}

}  // namespace lockstep::data
