// Parses the text of a `--data` option.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/caption_source.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "lockstep/data/source/csv/csv_text.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/source/idx_source.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/data/source/memory_source.h"
#include "lockstep/data/source/text_source.h"
#include "lockstep/data/source/text_table_source.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"

namespace lockstep::inline v0::data {
namespace {

using Paths = std::vector<std::filesystem::path>;

constexpr const char* kFashionMnist = "fashion-mnist";
constexpr const char* kImages = "images";
constexpr const char* kIdx = "idx";

[[noreturn]] void fail_input(const std::string& spec, std::string_view expected,
                             std::string_view actual) {
  throw Error(ErrorCategory::input, spec, expected, actual);
}

/// A directory, and the part of it that is read.
struct DirectoryPart {
  std::filesystem::path directory;
  std::string part;
};

bool has_pattern(const std::string& spec) {
  return spec.find_first_of("*?[{~") != std::string::npos;
}

/// The part that `spec` names, or `otherwise`.
std::string read_part(Spec& spec, const std::string& otherwise) {
  for (const char* part : {"train", "test"})
    if (spec.take(part)) return part;
  return otherwise;
}

/// Logs which file was chosen for an ambiguous text.
void log_path(const std::string& path, const DataSpecOptions& options) {
  std::error_code ignored;
  const bool is_chosen = (path.find(':') != std::string::npos || has_pattern(path)) &&
                         std::filesystem::exists(path, ignored);
  if (is_chosen && options.log && options.tfrecord.exchange.member == 0)
    options.log->info(fmt::format("data are read from \"{}\"", path));
}

template <bool images>
Dataset open_synthetic(const std::string& arguments, const DataSpecOptions& options) {
  const std::string kind = images ? "synthetic-images" : "synthetic";
  const std::string text = fmt::format("{}:{}", kind, arguments);
  Spec spec = Spec::parse(text, text);
  const std::string part = read_part(spec, options.part);
  const auto shape = parse_extents(spec.next("HxWxC").value_or(""));
  const auto classes = parse_number<std::int64_t>(spec.next("CLASSES").value_or(""));
  const auto count = parse_number<std::int64_t>(spec.next("COUNT").value_or(""));
  spec.finish();
  if (!shape || !classes || !count || *classes < 1 || *count < 1)
    spec.refuse("", fmt::format("expected positive numbers in {}:HxWxC,CLASSES,COUNT", kind));
  return Dataset::from_source(
      std::make_shared<SyntheticSource>(SyntheticOptions{.shape = *shape,
                                                         .classes = *classes,
                                                         .count = *count,
                                                         .seed = options.seed,
                                                         .part = part,
                                                         .images = images}));
}

/// Returns no files, but throws for an invalid text.
template <bool images>
Paths synthetic_files(const std::string& text, const DataSpecOptions& options) {
  open_synthetic<images>(text, options);
  return {};
}

/// A test set that numbers its categorical values itself would not match the training set.
Dataset open_csv(const std::string& text, const DataSpecOptions& options) {
  const std::string where = "csv:" + text;
  CsvSpec table = CsvSpec::parse(text, where);
  log_path(table.file.string(), options);
  table.options.schema = options.table;
  table.options.may_lack_labels = options.may_lack_labels;
  table.options.keeps_bad_rows = options.tfrecord.skip_damage;
  if (table.options.features.empty()) table.options.features = options.features;
  if (!table.options.scale && !options.scales_tables) table.options.scale = ColumnScale::none;
  table.options.infers = options.scales_tables;
  table.options.exchange = options.tfrecord.exchange;
  table.options.split = options.split;
  const auto source = std::make_shared<CsvSource>(table.file, table.options);
  if (options.part == "test" && source->infers_schema())
    fail_input(
        where,
        "expected like=FILE, the training table that defines the numbers of categorical values",
        "there is none");
  return Dataset::from_source(source);
}

Paths csv_files(const std::string& text, const DataSpecOptions& /*options*/) {
  return table_files(CsvSpec::parse(text, "csv:" + text).file);
}

Dataset open_text(const std::string& text, const DataSpecOptions& options) {
  TextSpec spec = TextSpec::parse(text, "text:" + text);
  log_path(spec.files, options);
  spec.options.schema = options.text;
  spec.options.exchange = options.tfrecord.exchange;
  spec.options.without_labels = options.may_lack_labels;
  const Paths files = matching_files({spec.files});
  const std::int64_t length =
      spec.options.length > 0 ? spec.options.length : TextOptions::kDefaultLength;
  const bool overlaps = spec.options.stride > 0 && spec.options.stride < length;
  if (options.split && (spec.options.has_images() || overlaps))
    fail_input("text:" + text,
               "expected samples without common texts or images with --validation-split and "
               "--test-split; --validation-data names a file of others",
               overlaps ? "got stride= below length=" : "got captions of images");
  if (spec.options.has_images())
    return Dataset::from_source(std::make_shared<CaptionSource>(files, std::move(spec.options),
                                                                options.tfrecord.input_shape));
  if (spec.options.is_table())
    return Dataset::from_source(std::make_shared<TextTableSource>(files, std::move(spec.options)));
  return Dataset::from_source(std::make_shared<TextSource>(files, std::move(spec.options)));
}

Paths text_files(const std::string& text, const DataSpecOptions& /*options*/) {
  return matching_files({TextSpec::parse(text, "text:" + text).files});
}

/// The first image may be gray although the training images were in color.
Dataset open_image_folder(const std::string& directory, const DataSpecOptions& options) {
  const auto open = [&](const std::vector<std::int64_t>& shape) {
    return options.may_lack_labels ? Dataset::from_source(std::make_shared<ImageFolderSource>(
                                         directory, shape, ImageFolders::none))
                                   : Dataset::from_images(directory, shape);
  };
  Dataset dataset = open(options.tfrecord.input_shape);
  const std::vector<std::int64_t>& trained = options.tfrecord.trained_shape;
  const std::vector<std::int64_t> first = dataset.spec().shape();
  const bool is_gray = options.tfrecord.input_shape.empty() && first.size() == 3 && first[2] == 1;
  if (is_gray && trained == std::vector<std::int64_t>{first[0], first[1], 3})
    dataset = open(trained);
  if (options.may_lack_labels) return dataset;
  const std::int64_t classes = options.tfrecord.classes_by_name ? 0 : options.tfrecord.classes;
  if (classes > 0 && dataset.spec().classes() != classes)
    throw Error(ErrorCategory::data, directory,
                fmt::format("expected folders of {} classes, including empty ones, because their "
                            "order defines the class numbers",
                            classes),
                fmt::format("there are {}", dataset.spec().classes()));
  return dataset;
}

/// The directory and the part of "images:DIRECTORY" or "idx:DIRECTORY:train".
DirectoryPart parse_directory(const char* kind, const std::string& text,
                              const DataSpecOptions& options) {
  Spec spec = Spec::of_path(fmt::format("{}:{}", kind, text), text, {"train", "test"});
  const std::string part = kind == kIdx ? read_part(spec, options.part) : options.part;
  spec.finish();
  log_path(spec.head(), options);
  return {spec.head(), part};
}

Dataset open_images(const std::string& text, const DataSpecOptions& options) {
  return open_image_folder(parse_directory(kImages, text, options).directory.string(), options);
}

Paths images_files(const std::string& text, const DataSpecOptions& options) {
  return class_folders(parse_directory(kImages, text, options).directory);
}

Dataset open_idx(const std::string& text, const DataSpecOptions& options) {
  const auto [directory, part] = parse_directory(kIdx, text, options);
  if (options.may_lack_labels)
    return Dataset::from_source(
        std::make_shared<IdxSource>(find_idx_images(directory, part), options.tfrecord.exchange));
  return Dataset::from_idx(directory, part, options.tfrecord.exchange);
}

Paths files_of_part(const std::filesystem::path& directory, const std::string& part) {
  const auto files = find_idx_files(directory, part);
  if (!files)
    throw Error(ErrorCategory::data, directory.string(),
                fmt::format("expected the IDX files of the part {}", part), "they are missing");
  return {files->images, files->labels};
}

Paths idx_files(const std::string& text, const DataSpecOptions& options) {
  const auto [directory, part] = parse_directory(kIdx, text, options);
  return files_of_part(directory, part);
}

std::string fashion_mnist_part(const std::string& text, const DataSpecOptions& options) {
  Spec spec = Spec::parse(kFashionMnist + text, kFashionMnist + text);
  const std::string part = read_part(spec, options.part);
  spec.finish();
  return part;
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
  throw Error(ErrorCategory::data, fmt::format("{}:{}", kFashionMnist, part),
              fmt::format("expected the Fashion-MNIST files in one of {}: install the Debian "
                          "package dataset-fashion-mnist, or set their directory with --data-dir",
                          searched),
              "none of them has the files");
}

Dataset open_fashion_mnist(const std::string& text, const DataSpecOptions& options) {
  const std::string part = fashion_mnist_part(text, options);
  return Dataset::from_source(std::make_shared<IdxSource>(find_fashion_mnist(part, options), part,
                                                          fmt::format("{} {}", kFashionMnist, part),
                                                          options.tfrecord.exchange));
}

Paths fashion_mnist_files(const std::string& text, const DataSpecOptions& options) {
  const std::string part = fashion_mnist_part(text, options);
  return files_of_part(find_fashion_mnist(part, options), part);
}

/// A data format: everything about it except its source.
struct Format {
  std::string_view prefix;  ///< ends in a colon, except for the name of a data set
  std::string_view usage;   ///< the text after the prefix, for messages and the help
  /// Both receive the text after the prefix. `files` is like data_files().
  Dataset (*open)(const std::string& text, const DataSpecOptions& options);
  Paths (*files)(const std::string& text, const DataSpecOptions& options);
  std::array<std::string_view, 3> extensions = {};  ///< file extensions, in lower case

  std::string_view name() const { return prefix.substr(0, prefix.find(':')); }
};

constexpr std::array kFormats = {
    Format{"images:",
           "DIRECTORY with one folder of JPEG and PNG files per class",
           open_images,
           images_files,
           {".jpg", ".jpeg", ".png"}},
    Format{kFashionMnist, "[:train|:test]", open_fashion_mnist, fashion_mnist_files},
    Format{"idx:", "DIRECTORY[:train|:test]", open_idx, idx_files},
    Format{"csv:",
           "FILES[:OPTIONS] (such as label=species,drop=id+date)",
           open_csv,
           csv_files,
           {".csv", ".tsv"}},
    Format{"text:",
           "FILES[:OPTIONS] (such as tokenizer=bytes,length=64)",
           open_text,
           text_files,
           {".txt"}},
    Format{"synthetic:", "HxWxC,CLASSES,COUNT (generated floats)", open_synthetic<false>,
           synthetic_files<false>},
    Format{"synthetic-images:", "HxWxC,CLASSES,COUNT (generated bytes, like pixels)",
           open_synthetic<true>, synthetic_files<true>},
};

/// The format whose prefix `spec` begins with; null if there is none.
const Format* format_of(std::string_view spec) {
  const auto* const format = std::ranges::find_if(kFormats, [&](const Format& known) {
    const std::string_view rest = spec.substr(std::min(known.prefix.size(), spec.size()));
    return spec.starts_with(known.prefix) &&
           (known.prefix.ends_with(':') || rest.empty() || rest.starts_with(':'));
  });
  return format == kFormats.end() ? nullptr : format;
}

/// DIRECTORY, with the part of `options`, or DIRECTORY:PART, whose parts only a dataset.json
/// defines. nullopt if `spec` is neither.
std::optional<DirectoryPart> directory_part(const std::string& text,
                                            const DataSpecOptions& options) {
  Spec spec = Spec::of_path(text, text);
  std::error_code ignored;
  const std::filesystem::path directory = spec.head();
  const bool has_part = !spec.items().empty();
  if (!std::filesystem::is_directory(directory, ignored) ||
      (has_part && !std::filesystem::exists(directory / kDatasetJson, ignored)))
    return std::nullopt;
  std::string part = spec.next("PART").value_or(options.part);
  spec.finish();
  log_path(spec.head(), options);
  return DirectoryPart{directory, std::move(part)};
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

TFRecordOptions tfrecord_options(const DataSpecOptions& options) {
  TFRecordOptions tfrecord = options.tfrecord;
  tfrecord.without_labels = options.may_lack_labels;
  return tfrecord;
}

Dataset open_described(const DirectoryPart& wanted, const DataSpecOptions& options) {
  const auto& [directory, part] = wanted;
  const auto files = described_files(wanted);
  if (!files && (options.may_lack_labels ? has_images(directory) : is_image_folder(directory)))
    return open_image_folder(directory, options);
  if (!files) fail_without_data(directory);
  return Dataset::from_tfrecords(
      *files, tfrecord_options(options),
      fmt::format("{} {} in {}", part, kDatasetJson, directory.string()));
}

/// Whether the text is probably a file pattern rather than a misspelled data set name.
bool looks_like_files(const std::string& spec) {
  return spec.find_first_of("*?[{/.~") != std::string::npos;
}

/// The path of TFRecord files in `text`. Throws Error (input) if it is not one.
std::string record_files(const std::string& text, const DataSpecOptions& options) {
  refuse_other_formats(text);
  Spec spec = Spec::of_path(text, text);
  const std::string& path = spec.head();
  std::error_code ignored;
  const std::size_t colon = text.find(':');
  const bool exists = std::filesystem::exists(path, ignored);
  // "cvs:shop.csv:label=bought" looks like a file as well.
  const bool has_kind = colon != std::string::npos && text.find_first_of("*?[{/.~") > colon;
  if (!exists && (!looks_like_files(text) || (has_kind && !has_pattern(text)))) {
    std::array<std::string_view, kFormats.size()> names;
    std::ranges::transform(kFormats, names.begin(), &Format::name);
    fail_input(text, "expected " + data_usage(), got_name(text.substr(0, colon), names));
  }
  spec.finish();
  log_path(path, options);
  return path;
}

/// The extension of a file name in lower case, without that of a gzip file.
std::string extension_of_name(const std::filesystem::path& path) {
  std::string extension =
      (path.extension() == ".gz" ? path.stem().extension() : path.extension()).string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

}  // namespace

bool names_part(const std::string& spec) {
  return !Spec::of_path(spec, spec).items().empty() && directory_part(spec, {}).has_value();
}

bool names_format(const std::string& spec) { return format_of(spec) != nullptr; }

std::string data_usage() {
  std::string text =
      "a glob of TFRecord files; DIRECTORY[:PART] with a dataset.json, or DIRECTORY with folders "
      "of images";
  for (const Format& format : kFormats) text += fmt::format("; {}{}", format.prefix, format.usage);
  return text;
}

void refuse_other_formats(const std::string& spec) {
  static constexpr auto kUnread =
      std::to_array<std::string_view>({".parquet", ".feather", ".arrow", ".jsonl", ".npy", ".npz",
                                       ".h5", ".hdf5", ".xls", ".xlsx", ".pkl", ".pt", ".zip"});
  const Spec parsed = Spec::of_path(spec, spec);
  const std::filesystem::path path = parsed.head();
  const std::string extension = extension_of_name(path);
  const std::string got = fmt::format("got the name of a {} file", extension);
  const auto* const format = std::ranges::find_if(kFormats, [&](const Format& known) {
    return !extension.empty() && std::ranges::count(known.extensions, extension) > 0;
  });
  // Without another kind, such as "cvs:".
  std::error_code ignored;
  const std::size_t colon =
      std::filesystem::exists(path, ignored) ? std::string::npos : path.string().find(':');
  if (format != kFormats.end() && format->open == open_csv)
    fail_input(spec,
               fmt::format("expected {0} before the name of the file: {0}{1}{2}", format->prefix,
                           spec.substr(colon + 1),
                           extension == ".tsv" && parsed.items().empty() ? ":sep=tab" : ""),
               got);
  // predict reads single images: if there is no such file, this is found next.
  const bool is_image = format != kFormats.end() && format->open == open_images;
  if (is_image && !has_pattern(path.string()) && !std::filesystem::exists(path, ignored)) return;
  if (format != kFormats.end())
    fail_input(spec, fmt::format("expected {}{}", format->prefix, format->usage), got);
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
  if (std::ranges::count(kUnread, extension) > 0)
    fail_input(spec,
               "expected TFRecord files, a table (csv:FILE) or folders of images "
               "(images:DIRECTORY); write the data in one of these formats first",
               got);
}

namespace {

Dataset open_whole(const std::string& spec, const DataSpecOptions& options) {
  if (const Format* format = format_of(spec))
    return format->open(spec.substr(format->prefix.size()), options);
  if (const auto described = directory_part(spec, options))
    return open_described(*described, options);
  if (options.may_lack_labels && has_images(spec)) return open_image_folder(spec, options);
  return Dataset::from_tfrecords(record_files(spec, options), tfrecord_options(options));
}

}  // namespace

Dataset open_data(const std::string& spec, const DataSpecOptions& options) {
  Dataset opened = open_whole(spec, options);
  if (!options.split || opened.source().info().split) return opened;  // a table is split by itself
  return opened.split(*options.split);
}

std::vector<std::filesystem::path> data_files(const std::string& spec,
                                              const DataSpecOptions& data_options) {
  DataSpecOptions options = data_options;
  options.log = {};  // open_data() logs the files
  if (const Format* format = format_of(spec))
    return format->files(spec.substr(format->prefix.size()), options);
  if (const auto described = directory_part(spec, options)) {
    if (const auto files = described_files(*described)) return *files;
    if (!is_image_folder(described->directory)) fail_without_data(described->directory);
    return class_folders(described->directory);
  }
  return matching_files({record_files(spec, options)});
}

}  // namespace lockstep::inline v0::data
