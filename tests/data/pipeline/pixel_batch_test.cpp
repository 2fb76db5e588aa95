// Batches of uint8 images, unchanged for the model's device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sample/record_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

constexpr ChannelNormalization kTwoChannels{
    .channels = 2, .mean = {0.25f, 0.75f}, .deviation = {0.5f, 2.0f}};

/// Images [1, 3, 2]; the pixels of record i are 10 i, 10 i + 1, ...
class ImageSource final : public RecordSource {
 public:
  ImageSource()
      : RecordSource({.spec = SampleSpec::classification({1, 3, 2}, 2),
                      .size = 7,
                      .description = "images",
                      .has_images = true}) {}
  void read(std::int64_t record_id, Sample& sample) const override {
    std::vector<std::uint8_t> image(6);
    for (std::size_t i = 0; i < image.size(); ++i)
      image[i] = static_cast<std::uint8_t>(static_cast<std::size_t>(record_id) * 10 + i);
    sample.set_image(image);
    sample.label() = 1;
  }
};

Dataset pixel_images() {
  return Dataset::from_source(std::make_shared<ImageSource>()).normalize(kTwoChannels).batch(3);
}

std::vector<Batch> pixel_batches_of(const Dataset& dataset, bool pixels) {
  const auto stream = dataset.stream({.last_step = dataset.steps_per_epoch(), .pixels = pixels});
  std::vector<Batch> batches;
  for (std::vector<Batch> parts; stream->next(parts);) batches.push_back(parts.front());
  return batches;
}

TEST(PixelBatches, ConvertToTheSameFeatures) {
  const auto pixels = pixel_batches_of(pixel_images().shuffle(), true);
  const auto features = pixel_batches_of(pixel_images().shuffle(), false);
  ASSERT_EQ(pixels.size(), features.size());
  for (std::size_t step = 0; step < pixels.size(); ++step) {
    EXPECT_TRUE(pixels[step].features().empty());
    EXPECT_TRUE(features[step].pixels().empty());
    EXPECT_EQ(pixels[step].targets, features[step].targets);
    EXPECT_EQ(pixels[step].normalization, kTwoChannels);
    EXPECT_EQ(features[step].normalization, ChannelNormalization()) << "already normalized";
    std::vector<float> converted(pixels[step].pixels().size());
    pixels_to_features(pixels[step].pixels(), pixels[step].normalization, converted);
    EXPECT_EQ(converted, copy(features[step].features()));
  }
}

TEST(PixelBatches, AreFeaturesIfAMapChangesThem) {
  const Dataset mapped =
      pixel_images().map([](Sample& sample, const SampleKey&) { sample.features()[0] = 1; });
  for (const Batch& batch : pixel_batches_of(mapped, true)) {
    EXPECT_TRUE(batch.pixels().empty());
    EXPECT_EQ(batch.features()[0], (1 - 0.25f) / 0.5f) << "normalized after the map";
  }
}

TEST(PixelBatches, AreReadFromRawBytesOfRecords) {
  const TemporaryDirectory directory;
  write_records(directory / "images", {image_record(0, 4, 7), image_record(1, 4, 9)});
  const Dataset records =
      Dataset::from_tfrecords((directory / "images").string(), {.input_shape = {2, 2, 1}});
  EXPECT_TRUE(records.source().info().has_images);
  const Batch batch = pixel_batches_of(records.batch(2), true).front();
  EXPECT_THAT(copy(batch.pixels()), testing::ElementsAre(7, 7, 7, 7, 9, 9, 9, 9));
  write_records(
      directory / "floats",
      {serialize_example({{"image", std::vector<float>{1, 2}}, {"label", Int64List{0}}})});
  EXPECT_FALSE(Dataset::from_tfrecords((directory / "floats").string()).source().info().has_images);
}

TEST(PixelBatches, RejectARecordOfFloats) {
  const TemporaryDirectory directory;
  write_records(directory / "mixed",
                {image_record(0, 2, 7), serialize_example({{"image", std::vector<float>{1, 2}},
                                                           {"label", Int64List{0}}})});
  const Dataset records =
      Dataset::from_tfrecords((directory / "mixed").string(), {.input_shape = {2}});
  EXPECT_THAT(data_error_of([&] { pixel_batches_of(records.batch(2), true); }),
              testing::HasSubstr(
                  "expected 2 raw bytes in image for shape [2]; it has 2 values of kind float"));
}

TEST(Normalization, RequiresConstantsForEachChannel) {
  const Dataset dataset = Dataset::from_source(std::make_shared<ImageSource>());
  EXPECT_EQ(input_error_of([&] { dataset.normalize({.channels = 3}); }),
            "[normalize] expected a mean and a deviation above 0 for each of the 2 channels, got 3 "
            "deviations: 1, 1, 1");
  EXPECT_EQ(input_error_of([&] {
              dataset.normalize({.channels = 2, .deviation = {1, 0}});
            }),
            "[normalize] expected a mean and a deviation above 0 for each of the 2 channels, got 2 "
            "deviations: 1, 0");
}

}  // namespace
}  // namespace lockstep::inline v0::data
