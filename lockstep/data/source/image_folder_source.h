// Images in one folder per class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/image/transform.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"

namespace lockstep::inline v0::data {

/// What the folders in a directory of images mean.
enum class ImageFolders {
  classes,  ///< each is a class
  none,     ///< nothing: images, also in the directory itself, have no labels
};

/// The folders in a directory, sorted by name, are the classes. The images are the files in them
/// and their subfolders whose names end in .jpg, .jpeg or .png, sorted by path within each class.
/// Names that start with a dot are ignored; other files are skipped. description() counts them, and
/// warns if all folders have names of parts, such as train and val. Without labels, the order is
/// the same, with the images and folders of the directory sorted by name. A file is opened when its
/// record is read; JPEG and PNG are distinguished by content.
class ImageFolderSource final : public RecordSource {
 public:
  /// `shape` is the shape [H, W, C] of all images; empty: the shape of the first that is readable,
  /// whose header is read. Throws Error (data) for a directory without folders or without images,
  /// and for a folder with other files but no image. Without labels, only a directory without
  /// images is an error, and `directory` may be an image.
  explicit ImageFolderSource(const std::filesystem::path& directory,
                             const std::vector<std::int64_t>& shape = {},
                             ImageFolders folders = ImageFolders::classes);

  void read(std::int64_t record_id, Sample& sample) const override;
  [[noreturn]] void fail_image(std::int64_t record_id, const Error& error) const override;

  /// The file of a record, relative to the directory: "cat/1.jpg".
  std::string name_of(std::int64_t record_id) const;
  /// The number of a record's class, without reading its file. Requires labels.
  std::int32_t class_of(std::int64_t record_id) const {
    return files_[static_cast<std::size_t>(record_id)].folder;
  }
  std::filesystem::path path_of(std::int64_t record_id) const {
    return directory_ / name_of(record_id);
  }
  /// If all folders have names of parts of a data set: the one of training, otherwise the first.
  std::optional<std::filesystem::path> likely_part() const;

 private:
  static constexpr std::int32_t kNoFolder = -1;  // in the directory itself
  struct File {
    std::string name;  // relative to its folder
    std::int32_t folder = kNoFolder;
  };

  bool has_labels() const { return meaning_ == ImageFolders::classes; }
  void find_all_files();
  void find_files(std::int32_t folder);
  std::vector<std::int64_t> shape_of_first() const;
  std::string description() const;
  std::uint64_t hash_of_names() const;

  std::filesystem::path directory_;
  ImageFolders meaning_;
  std::vector<std::string> folders_;  // the classes, if there are labels
  std::vector<File> files_;
  std::map<std::string, std::int64_t> other_files_;  // number of skipped files per extension
  std::optional<ImageTransform> as_stored_;          // always set after construction
};

/// Sets the first input of `sample` to the JPEG or PNG file `encoded` of a record of `source`: as
/// stored if that is requested, otherwise decoded by `as_stored`. Throws the Error of
/// source.fail_image() for an image that cannot be decoded.
void set_image_file(const RecordSource& source, std::int64_t record_id, std::string encoded,
                    const ImageTransform& as_stored, Sample& sample);

/// The class folders in `directory`, sorted. Throws Error (data) if there are none.
std::vector<std::filesystem::path> class_folders(const std::filesystem::path& directory);

/// Throws Error (data) if there are images in `directory` itself, which have no class.
void refuse_images_without_class(const std::filesystem::path& directory);

/// Whether `path` is an image by its name, or a directory that contains one, at any depth.
bool has_images(const std::filesystem::path& path);

/// Whether `directory` has a folder that contains an image, directly or in a subfolder.
bool is_image_folder(const std::filesystem::path& directory);

/// The files in the folders of `directory` without an image's extension, by extension: "57 other
/// files (55 .bmp, 2 without extension)"; empty if there are none.
std::string other_files_text(const std::filesystem::path& directory);

}  // namespace lockstep::inline v0::data
