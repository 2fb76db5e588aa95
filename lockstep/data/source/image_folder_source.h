// Images in folders, one for each class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/image/transform.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// The folders in a directory, sorted by name, are the classes; the files in them and below whose names end in .jpg,
/// .jpeg or .png are the images, sorted by path within each class. Names that begin with a dot are passed over. A file
/// is opened when its record is read, and told to be JPEG or PNG by its content.
class ImageFolderSource final : public RecordSource {
 public:
  /// `shape`: [H, W, C] of all images; empty: that of the first, whose header is read. Throws Error (data) for a
  /// directory without folders or without images.
  explicit ImageFolderSource(const std::filesystem::path& directory, const std::vector<std::int64_t>& shape = {});

  const SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  bool has_images() const override { return true; }
  bool has_encoded_images() const override { return true; }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::vector<std::string> class_names() const override { return class_names_; }
  std::string description() const override;

  std::filesystem::path path_of(std::int64_t record_id) const;

 private:
  struct File {
    std::string name;  // within the folder of its class
    std::int32_t label = 0;
  };

  void find_classes();
  void find_files(std::int32_t label);
  std::vector<std::int64_t> shape_of_first() const;

  std::filesystem::path directory_;
  std::vector<std::string> class_names_;
  std::vector<File> files_;
  SampleSpec spec_;
  std::optional<ImageTransform> as_stored_;  // always there once the source is constructed
};

/// The folders in `directory` that are classes, sorted. Throws Error (data) where there are none.
std::vector<std::filesystem::path> class_folders(const std::filesystem::path& directory);

/// Whether `directory` has a folder with an image in it or below.
bool is_image_folder(const std::filesystem::path& directory);

}  // namespace lockstep::data
