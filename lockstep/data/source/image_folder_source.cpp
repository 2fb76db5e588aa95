#include "lockstep/data/source/image_folder_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/source/folder_walk.h"

namespace lockstep::inline v0::data {
namespace {

namespace fs = std::filesystem;

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// ".jpg" of "A.JPG".
std::string extension_of(const fs::path& path) { return lower_case(path.extension().string()); }

bool is_image(const fs::path& path) {
  const std::string extension = extension_of(path);
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

/// The class folders.
std::vector<fs::path> folders_in(const fs::path& directory) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    if (std::error_code ignored; entry->is_directory(ignored) && !is_hidden(entry->path()))
      folders.push_back(entry->path());
  if (error)
    throw Error(ErrorCategory::data, directory.string(), "expected a readable directory",
                error.message());
  std::ranges::sort(folders);
  return folders;
}

/// Number of skipped files by extension; kLinks are links to folders.
using Counts = std::map<std::string, std::int64_t>;
constexpr const char* kLinks = "linked folder";

/// "57 other files", "1 other file".
std::string number_text(const Counts& counts) {
  std::int64_t files = 0;
  for (const auto& [extension, count] : counts) files += count;
  return counted(files, "other file");
}

/// "55 .bmp, 2 without extension": the most frequent extensions first.
std::string extensions_text(const Counts& counts) {
  constexpr std::size_t kShown = 8;
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> texts;
  for (const auto& [extension, count] : sorted) {
    if (texts.size() == kShown) {
      texts.emplace_back("...");
      break;
    }
    texts.push_back(
        extension == kLinks
            ? counted(count, kLinks)
            : fmt::format("{} {}", count, extension.empty() ? "without extension" : extension));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

[[noreturn]] void fail_unusable(const fs::path& path, const Error& error) {
  throw Error(ErrorCategory::data, path.string(), "expected a usable image", error.what());
}

/// Calls use(bytes) with the contents of the file; adds the file name to its errors.
template <typename Use>
auto with_image(const fs::path& path, Use use) {
  const std::string bytes = read_all(InputFile(path), Compression::none);
  try {
    return use(bytes_of(bytes));
  } catch (const Error& error) {
    fail_unusable(path, error);
  }
}

/// Whether the folder is probably a part of a data set, not a class.
bool is_part(const std::string& name) {
  constexpr std::array<std::string_view, 9> kParts = {
      "train", "training", "val", "valid", "validation", "test", "testing", "eval", "dev"};
  return std::ranges::find(kParts, lower_case(name)) != kParts.end();
}

}  // namespace

void refuse_images_without_class(const fs::path& directory) {
  std::int64_t images = 0;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    if (std::error_code ignored; entry->is_regular_file(ignored) && !is_hidden(entry->path()))
      images += is_image(entry->path());
  if (images > 0)
    throw Error(
        ErrorCategory::data, directory.string(),
        "expected the images of each class in a folder of that name: DIRECTORY/CLASS/IMAGE",
        fmt::format("{} in the directory itself, and none in folders",
                    images == 1 ? "there is 1 image" : fmt::format("there are {} images", images)));
}

std::vector<fs::path> class_folders(const fs::path& directory) {
  if (std::error_code ignored; fs::is_regular_file(directory, ignored))
    throw Error(ErrorCategory::data, directory.string(),
                "expected a directory with a folder of images for each class", "it is a file");
  std::vector<fs::path> folders = folders_in(directory);
  if (!folders.empty()) return folders;
  refuse_images_without_class(directory);
  throw Error(ErrorCategory::data, directory.string(),
              "expected a folder for each class, with images in it", "there are no folders");
}

void set_image_file(const RecordSource& source, std::int64_t record_id, std::string encoded,
                    const ImageTransform& as_stored, Sample& sample) {
  if (StoredImage* const image = sample.image) {
    image->memory = std::move(encoded);
    image->bytes = bytes_of(image->memory);
    image->is_encoded = true;
    image->source = &source;
    image->record_id = record_id;
    return;
  }
  try {
    as_stored.apply(bytes_of(encoded), {}, sample);
  } catch (const Error& error) {
    source.fail_image(record_id, error);
  }
}

ImageFolderSource::ImageFolderSource(const fs::path& directory,
                                     const std::vector<std::int64_t>& shape, ImageFolders folders)
    : directory_(directory), meaning_(folders) {
  find_all_files();
  info_.size = std::ssize(files_);
  if (files_.empty() && !has_labels())
    throw Error(ErrorCategory::data, directory.string(),
                "expected images, files that end in .jpg, .jpeg or .png",
                other_files_.empty() ? "there are no files"
                                     : fmt::format("got only {} ({})", number_text(other_files_),
                                                   extensions_text(other_files_)));
  if (files_.empty()) refuse_images_without_class(directory);
  if (files_.empty())
    throw Error(ErrorCategory::data, directory.string(),
                "expected files that end in .jpg, .jpeg or .png in the class folders",
                fmt::format("there are none in {}", fmt::join(folders_, ", ")));
  const std::vector<std::int64_t> used = shape.empty() ? shape_of_first() : shape;
  check_shape(used, directory.string());
  if (used.size() != 3)
    throw Error(ErrorCategory::input, directory.string(), "expected a shape HxWxC for images",
                fmt::format("got [{}]", fmt::join(used, ", ")));
  info_.spec = SampleSpec::classification(used, std::ssize(folders_));
  if (has_labels())
    info_.class_names = folders_;
  else
    info_.spec.targets.clear();
  info_.has_images = true;
  info_.has_encoded_images = true;
  info_.description = description();
  info_.identity = hash_of_names();
  as_stored_.emplace(ImageRecipe::parse("none", static_cast<int>(used[0]),
                                        static_cast<int>(used[1]), static_cast<int>(used[2])));
}

void ImageFolderSource::find_all_files() {
  std::error_code error;
  if (!has_labels() && fs::is_regular_file(directory_, error)) {
    files_.push_back({directory_.filename().string()});
    directory_ = directory_.parent_path();
    return;
  }
  for (const fs::path& folder : has_labels() ? class_folders(directory_) : folders_in(directory_))
    folders_.push_back(folder.filename().string());
  for (std::size_t i = 0; i < folders_.size(); ++i) find_files(static_cast<std::int32_t>(i));
  // Files outside the class folders have no class.
  for (fs::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error))
    if (std::error_code ignored; entry->is_regular_file(ignored) && !is_hidden(entry->path())) {
      if (!has_labels() && is_image(entry->path()))
        files_.push_back({entry->path().filename().string()});
      else
        ++other_files_[extension_of(entry->path())];
    }
  if (!has_labels())
    std::ranges::stable_sort(files_, {}, [&](const File& file) -> const std::string& {
      return file.folder == kNoFolder ? file.name : folders_[file.folder];
    });
}

void ImageFolderSource::find_files(std::int32_t number) {
  const auto begin = static_cast<std::ptrdiff_t>(files_.size());
  const fs::path folder = directory_ / folders_[number];
  Counts others;
  for_files_below(
      folder,
      [&](const fs::path& path) {
        if (is_image(path)) {
          files_.push_back({path.lexically_relative(folder).string(), number});
        } else {
          ++others[extension_of(path)];
        }
        return true;
      },
      [&](const fs::path& /*link*/) { ++others[kLinks]; });
  // An empty folder is intended as a class; a folder whose files are all skipped is not.
  if (has_labels() && !others.empty() && static_cast<std::size_t>(begin) == files_.size())
    throw Error(
        ErrorCategory::data, folder.string(),
        "expected JPEG or PNG images, with names that end in .jpg, .jpeg or .png, or an "
        "empty folder",
        fmt::format("there are only {} ({})", number_text(others), extensions_text(others)));
  for (const auto& [extension, count] : others) other_files_[extension] += count;
  std::sort(files_.begin() + begin, files_.end(),
            [](const File& a, const File& b) { return a.name < b.name; });
}

std::vector<std::int64_t> ImageFolderSource::shape_of_first() const {
  constexpr std::int64_t kMaxTried = 100;  // more than a few images are damaged
  std::optional<Error> first;
  for (std::int64_t id = 0; id < std::min(size(), kMaxTried); ++id) {
    try {
      return with_image(path_of(id), [](std::span<const std::uint8_t> bytes) {
        const ImageHeader header = ImageDecoder().open(bytes);
        return std::vector<std::int64_t>{header.height, header.width, header.channels};
      });
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  throw Error(*first);
}

std::string ImageFolderSource::name_of(std::int64_t record_id) const {
  const File& file = files_[record_id];
  return file.folder == kNoFolder ? file.name : folders_[file.folder] + '/' + file.name;
}

std::uint64_t ImageFolderSource::hash_of_names() const {
  std::uint64_t hash = 1;
  for (std::int64_t record = 0; record < size(); ++record) {
    const std::string name = name_of(record);
    hash = XXH3_64bits_withSeed(name.data(), name.size(), hash);
  }
  return hash;
}

std::optional<fs::path> ImageFolderSource::likely_part() const {
  if (!has_labels() || !std::ranges::all_of(folders_, is_part)) return std::nullopt;
  const auto training = std::ranges::find_if(
      folders_, [](const std::string& name) { return lower_case(name).starts_with("train"); });
  return directory_ / (training == folders_.end() ? folders_.front() : *training);
}

std::string ImageFolderSource::description() const {
  const std::string left_out = other_files_.empty()
                                   ? ""
                                   : fmt::format(", {} left out ({})", number_text(other_files_),
                                                 extensions_text(other_files_));
  const auto part = likely_part();
  const std::string hint =
      part ? fmt::format(", whose folders look like parts of a data set: use {}", part->string())
           : "";
  const std::string classes = has_labels() ? fmt::format(" of {} class{}", folders_.size(),
                                                         folders_.size() == 1 ? "" : "es")
                                           : "";
  return fmt::format("{}{} in {}{}{}", counted(files_.size(), "image"), classes,
                     directory_.empty() ? "." : directory_.string(), hint, left_out);
}

void ImageFolderSource::read(std::int64_t record_id, Sample& sample) const {
  if (has_labels()) sample.label() = files_[record_id].folder;
  set_image_file(*this, record_id, read_all(InputFile(path_of(record_id)), Compression::none),
                 *as_stored_, sample);
}

void ImageFolderSource::fail_image(std::int64_t record_id, const Error& error) const {
  fail_unusable(path_of(record_id), error);
}

bool has_images(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return fs::exists(path, ignored) && is_image(path);
  bool found = false;
  for_files_below(path, [&](const fs::path& file) { return !(found = is_image(file)); });
  return found || is_image_folder(path);  // which may be a link
}

bool is_image_folder(const fs::path& directory) {
  bool found = false;
  for (const fs::path& folder : folders_in(directory)) {
    for_files_below(folder, [&](const fs::path& path) { return !(found = is_image(path)); });
    if (found) return true;
  }
  return false;
}

std::string other_files_text(const fs::path& directory) {
  Counts others;
  for (const fs::path& folder : folders_in(directory))
    for_files_below(folder, [&](const fs::path& path) {
      if (!is_image(path)) ++others[extension_of(path)];
      return true;
    });
  return others.empty() ? "" : fmt::format("{} ({})", number_text(others), extensions_text(others));
}

}  // namespace lockstep::inline v0::data
