#include "apps/lockstep/data/caption_image.h"

#include <fmt/format.h>

#include <memory>

#include "apps/lockstep/command_line/arguments.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/source/image_folder_source.h"

namespace lockstep::inline v0::apps {

std::vector<float> read_image(const std::string& file, const ModelSource& source,
                              const model::Shape& shape) {
  InputFile{file};  // throws for a directory
  const bool as_stored = !source.test_images && source.images == kImagesAsStored;
  const auto stored = data::Dataset::from_source(std::make_shared<data::ImageFolderSource>(
      file, as_stored ? shape : model::Shape(), data::ImageFolders::none));
  const data::Dataset image = source.test_images ? stored.images(*source.test_images)
                                                 : prepared(stored, source.images, "test");
  if (image.spec().shape() != shape)
    throw Error(ErrorCategory::data, file,
                fmt::format("expected an image of shape {}", model::to_string(shape)),
                fmt::format("got {}", model::to_string(image.spec().shape())));
  const auto stream = image.batch(1).stream({});
  std::vector<data::Batch> parts;
  stream->next(parts);
  const auto features = parts.at(0).features();
  return {features.begin(), features.end()};
}

}  // namespace lockstep::inline v0::apps
