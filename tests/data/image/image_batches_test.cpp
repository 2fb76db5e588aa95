// Batches of images from files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/image/transform.h"
#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::HasSubstr;

std::string encoded_record(const Bytes& file, std::int64_t label) {
  return serialize_example(
      {{"image/encoded", BytesList{text_of(file)}}, {"image/class/label", Int64List{label}}});
}

class ImageBatches : public testing::Test {
 protected:
  /// Alternating records of JPEG and PNG images of `height` x `width`.
  Dataset images(int count, int height = 12, int width = 10) {
    std::vector<std::string> records;
    for (int i = 0; i < count; ++i) {
      const Image image = i % 3 == 0 ? noisy_image(height, width) : smooth_image(height, width);
      records.push_back(
          encoded_record(i % 2 == 0 ? encode_jpeg(image.view()) : encode_png(image.view()), i % 4));
    }
    write_records(directory_ / "images", records);
    return open();
  }
  Dataset open() const { return Dataset::from_tfrecords((directory_ / "images").string()); }

  static std::vector<Batch> batches_of(const Dataset& dataset, StreamOptions options = {}) {
    if (options.last_step < 0) options.last_step = dataset.steps_per_epoch();
    const auto stream = dataset.stream(options);
    std::vector<Batch> batches;
    for (std::vector<Batch> parts; stream->next(parts);)
      batches.insert(batches.end(), parts.begin(), parts.end());
    return batches;
  }

  static ImageRecipe small_crops() {
    ImageRecipe recipe = ImageRecipe::parse("cifar10-train");
    recipe.height = 8;
    recipe.width = 6;
    recipe.geometry = PaddedCrop{4};
    return recipe;
  }

  const TemporaryDirectory directory_;
};

/// A JPEG whose header states 16384 x 16384 pixels.
TEST_F(ImageBatches, AnImageOfTooManyPixelsIsABadRecord) {
  const auto record = [](Bytes file) { return encoded_record(file, 1); };
  const Bytes sound = encode_jpeg(smooth_image(12, 10).view());
  Bytes huge = sound;
  const std::array<std::uint8_t, 2> frame = {0xff, 0xc0};
  const auto begin =
      std::search(huge.begin(), huge.end(), frame.begin(), frame.end()) - huge.begin();
  for (const int at : {5, 7}) {  // the extents after the marker, the length and the precision
    huge[static_cast<std::size_t>(begin + at)] = 0x40;
    huge[static_cast<std::size_t>(begin + at + 1)] = 0;
  }
  write_records(directory_ / "images", {record(sound), record(huge), record(sound), record(sound)});
  EXPECT_THAT(data_error_of([&] { batches_of(open().batch(2)); }),
              HasSubstr("expected at most 67108864 pixels; the header announces 16384 x 16384"));
  EXPECT_EQ(batches_of(open().batch(2).skip_bad_records(1)).size(), 2u);
}

TEST_F(ImageBatches, HaveTheShapeOfTheFirstImage) {
  const Dataset dataset = images(5);
  EXPECT_EQ(dataset.spec(), SampleSpec::classification({12, 10, 3}, 4));
  const std::vector<Batch> batches = batches_of(dataset.batch(5));
  const Image second = smooth_image(12, 10);  // a PNG, which is lossless
  const Bytes pixels = pixels_of(second.view());
  for (std::size_t i = 0; i < pixels.size(); ++i)
    ASSERT_EQ(batches[0].features()[pixels.size() + i], static_cast<float>(pixels[i]) / 255.0f)
        << i;
}

TEST_F(ImageBatches, HaveTheShapeOfTheRecipe) {
  const Dataset dataset = images(7).images(small_crops()).batch(3);
  EXPECT_EQ(dataset.spec().shape(), (std::vector<std::int64_t>{8, 6, 3}));
  EXPECT_THAT(dataset.description(), HasSubstr(", images cifar10-train"));
  const std::vector<Batch> batches = batches_of(dataset);
  EXPECT_EQ(batches[0].features().size(), 3u * 8 * 6 * 3);
  EXPECT_EQ(batches[2].features().size(), 1u * 8 * 6 * 3);
}

TEST_F(ImageBatches, MatchTheTransformForTheirKeys) {
  const Dataset plain = images(7).batch(7);
  const Dataset dataset = open().images(small_crops()).batch(7);
  const std::vector<Batch> epochs = batches_of(dataset, {.seed = 5, .last_step = 2});
  const std::vector<Batch> stored = batches_of(plain, {.last_step = 1, .pixels = true});
  const ImageTransform transform(small_crops());
  ImageScratch scratch;
  const std::size_t size = transform.output_size();
  for (std::int64_t epoch = 0; epoch < 2; ++epoch)
    for (std::size_t i = 0; i < 7; ++i) {
      const ImageView image = view_of(stored[0].pixels().subspan(i * 360, 360), 12, 10, 3);
      std::vector<float> expected(size);
      transform.apply(image, {5, epoch, static_cast<std::int64_t>(i)}, expected, scratch);
      const auto actual =
          epochs[static_cast<std::size_t>(epoch)].features().subspan(i * size, size);
      EXPECT_EQ(std::vector<float>(actual.begin(), actual.end()), expected) << epoch << " " << i;
    }
  EXPECT_NE(epochs[0].inputs, epochs[1].inputs) << "epochs have different crops";
}

TEST_F(ImageBatches, AreTheSameForAnyNumberOfReplicasAndThreads) {
  const Dataset dataset = images(20).images(small_crops()).shuffle().batch(6);
  const auto all_features = [&](StreamOptions options) {
    std::vector<float> features;
    for (const Batch& batch : batches_of(dataset, std::move(options)))
      features.insert(features.end(), batch.features().begin(), batch.features().end());
    return features;
  };
  const std::vector<float> expected = all_features({.seed = 9});
  EXPECT_EQ(all_features({.seed = 9, .replicas = 3, .local_replicas = 3, .threads = 2}), expected);
}

TEST_F(ImageBatches, AreBytesIfTheDeviceNormalizes) {
  const Dataset dataset = images(7).images(small_crops()).batch(7);
  const std::vector<Batch> pixels = batches_of(dataset, {.pixels = true});
  const std::vector<Batch> features = batches_of(dataset);
  EXPECT_TRUE(pixels[0].features().empty());
  std::vector<float> converted(pixels[0].pixels().size());
  pixels_to_features(pixels[0].pixels(), pixels[0].normalization, converted);
  EXPECT_EQ(converted, copy(features[0].features()));
  const Dataset twice = dataset.normalize({.channels = 3, .deviation = {2, 2, 2}});
  EXPECT_TRUE(batches_of(twice, {.pixels = true})[0].pixels().empty())
      << "a device normalizes once";
}

TEST_F(ImageBatches, NameTheImageThatDoesNotFit) {
  write_records(directory_ / "images", {encoded_record(encode_png(smooth_image(4, 4).view()), 0),
                                        encoded_record(encode_png(smooth_image(4, 5).view()), 1)});
  EXPECT_THAT(data_error_of([&] { batches_of(open().batch(2)); }), HasSubstr("record 1 at byte "));
  EXPECT_THAT(
      data_error_of([&] { batches_of(open().batch(2)); }),
      HasSubstr("] expected a usable image in image/encoded; [image recipe none] expected "
                "--image-size N, with which a training resizes all images to N x N, or images of "
                "4 x 4; one is 4 x 5"));
  Bytes cut = encode_jpeg(smooth_image(4, 4).view());
  cut.resize(cut.size() / 2);
  write_records(directory_ / "images",
                {encoded_record(encode_png(smooth_image(4, 4).view()), 0), encoded_record(cut, 1)});
  EXPECT_THAT(data_error_of([&] { batches_of(open().batch(2)); }),
              HasSubstr("[JPEG image] expected an intact image"));
}

TEST_F(ImageBatches, OfAnySizeReachTheirRecipeThroughRecordOperations) {
  write_records(directory_ / "images",
                {encoded_record(encode_png(smooth_image(20, 30).view()), 0),
                 encoded_record(encode_jpeg(smooth_image(31, 22).view()), 1)});
  const Dataset files = open();
  ImageRecipe recipe = ImageRecipe::parse("imagenet-test");
  recipe.height = recipe.width = 8;
  recipe.geometry = ResizedCenter{.shorter = 9};
  const Dataset images = files.images(recipe);
  const auto expect_same = [](const Dataset& before, const Dataset& after) {
    for (const bool pixels : {false, true}) {
      const auto expected = batches_of(after.batch(9), {.pixels = pixels}).front();
      const auto actual = batches_of(before.batch(9), {.pixels = pixels}).front();
      EXPECT_GT(expected.samples, 0);
      EXPECT_EQ(actual.inputs, expected.inputs) << before.description();
      EXPECT_EQ(actual.targets, expected.targets) << before.description();
    }
  };
  expect_same(files.repeat(2).skip(1).take(2).images(recipe), images.repeat(2).skip(1).take(2));
  expect_same(Dataset::interleave({files, files.concatenate(files)}, 2).images(recipe),
              Dataset::interleave({images, images.concatenate(images)}, 2));
  expect_same(images, images.cache());
}

TEST_F(ImageBatches, KeepColorsAfterAGrayImage) {
  write_records(directory_ / "images", {encoded_record(encode_png(smooth_image(4, 4, 1).view()), 0),
                                        encoded_record(encode_png(smooth_image(4, 4).view()), 1)});
  EXPECT_THAT(data_error_of([&] { batches_of(open().batch(2)); }),
              HasSubstr("[image recipe none] expected gray images, or the shape 4x4x3 for gray and "
                        "colored ones; one has 3 channels"));
  const TFRecordOptions options{.input_shape = {4, 4, 3}};
  const Dataset colored = Dataset::from_tfrecords((directory_ / "images").string(), options);
  const Bytes pixels = pixels_of(smooth_image(4, 4).view());
  const std::vector<Batch> batches = batches_of(colored.batch(2), {.pixels = true});
  EXPECT_EQ(Bytes(batches[0].pixels().begin() + 48, batches[0].pixels().end()), pixels);
  EXPECT_EQ(batches[0].pixels()[0], batches[0].pixels()[2]) << "gray in three channels";
  EXPECT_EQ(open().images(small_crops()).spec().shape().back(), 3)
      << "the recipe sets the channels";
}

TEST_F(ImageBatches, OfCifarHaveItsSizeInTrainingAndTesting) {
  write_records(directory_ / "images",
                {encoded_record(encode_png(smooth_image(40, 32).view()), 0)});
  for (const std::string recipe : {"cifar10-train", "cifar10-test"})
    EXPECT_THAT(
        data_error_of([&] { batches_of(open().images(ImageRecipe::parse(recipe)).batch(1)); }),
        HasSubstr(
            "[image recipe " + recipe +
            "] expected --image-size N, with which a training resizes all images to N x N, or "
            "images of 32 x 32; one is 40 x 32"));
}

TEST_F(ImageBatches, OfAnySizeAreForRecipesThatChangeIt) {
  write_records(directory_ / "images",
                {encoded_record(encode_png(smooth_image(20, 30).view()), 0),
                 encoded_record(encode_jpeg(smooth_image(31, 22).view()), 1)});
  const TFRecordOptions options{.input_shape = {224, 224, 3}};
  const Dataset dataset = Dataset::from_tfrecords((directory_ / "images").string(), options);
  EXPECT_EQ(batches_of(dataset.images(ImageRecipe::parse("imagenet-test")).batch(2))[0].samples, 2);
  EXPECT_THAT(
      data_error_of([&] { batches_of(dataset.batch(2)); }),
      HasSubstr("expected --image-size N, with which a training resizes all images to N x N, "
                "or images of 224 x 224; one is 20 x 30"));
  EXPECT_THAT(
      input_error_of([&] {
        Dataset::from_tfrecords((directory_ / "images").string(), {.input_shape = {672, 224}});
      }),
      HasSubstr("expected a shape HxWxC for the images in image/encoded, got [672, 224]"));
}

TEST_F(ImageBatches, DecodeFilesOfAsManyBytesAsElements) {
  const Image image = constant_image(30, 30, {7});
  Bytes file = encode_png(image.view());
  ASSERT_LT(file.size(), 900U);
  file.resize(900);  // bytes after the end are ignored
  write_records(directory_ / "images",
                {encoded_record(file, 0), encoded_record(encode_png(image.view()), 1)});
  const std::vector<Batch> batches = batches_of(open().batch(2), {.pixels = true});
  EXPECT_THAT(copy(batches[0].pixels()), testing::Each(7));
}

TEST_F(ImageBatches, RejectOtherChannelsThanTheRecipe) {
  std::vector<std::string> records = {image_record(0, 36, 1)};
  write_records(directory_ / "gray", records);
  const Dataset gray =
      Dataset::from_tfrecords((directory_ / "gray").string(), {.input_shape = {6, 6, 1}});
  EXPECT_THAT(
      input_error_of([&] { gray.images(small_crops()); }),
      HasSubstr("[images] expected images [H, W, 3] for the recipe cifar10-train; the images of "));
  EXPECT_THAT(input_error_of([&] { gray.images(small_crops()); }), HasSubstr(" are [6, 6, 1]"));
}

TEST_F(ImageBatches, RejectHugeImages) {
  write_records(directory_ / "images", {image_record(0, 36, 1)});
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{1 << 20, 1 << 20}, {1L << 40, 1L << 40}})
    EXPECT_THAT(
        input_error_of([&] {
          Dataset::from_tfrecords((directory_ / "images").string(), {.input_shape = shape});
        }),
        HasSubstr("expected a shape with positive extents and at most 2^28 elements, got ["));
}

TEST_F(ImageBatches, RejectRecipesOnNumbers) {
  const Dataset numbers = Dataset::synthetic({8, 8, 3}, 2, 4);
  EXPECT_EQ(input_error_of([&] { numbers.images(small_crops()); }),
            "[images] expected image records; the records of 4 synthetic samples of 8x8x3 are not "
            "images");
}

}  // namespace
}  // namespace lockstep::inline v0::data
