#include "lockstep/data/image/transform.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/data/image/augmentation.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/image/resize.h"
#include "lockstep/data/pipeline/mixup.h"
#include "lockstep/data/record/record_frame.h"
#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

const SampleKey kKey = {.seed = 3, .epoch = 1, .record_id = 8};

template <typename Value, typename Source>
std::vector<Value> applied(const ImageTransform& transform, const Source& image,
                           const SampleKey& key = kKey) {
  ImageScratch scratch;
  std::vector<Value> output(transform.output_size());
  transform.apply(image, key, std::span<Value>(output), scratch);
  return output;
}

/// The result of separate steps, each with a whole image.
Bytes step_by_step(const ImageRecipe& recipe, const ImageView& image, const Rectangle& part) {
  Image output;
  output.reshape(recipe.height, recipe.width, 3);
  PixelSink sink({output.span().pixels, pixels_of(output.view()).size()}, recipe.height,
                 recipe.width, 3);
  if (std::holds_alternative<PaddedCrop>(recipe.geometry)) {
    copy_part(image, part, false, sink);
  } else {
    Resizer().resize(whole(image.crop(part)), recipe.filter, false, sink);
  }
  Bytes flipped(pixels_of(output.view()).size());
  PixelSink flipped_sink(flipped, recipe.height, recipe.width, 3);
  copy_part(output.view(), {0, 0, recipe.width, recipe.height}, choose_flip(kKey, recipe.flip),
            flipped_sink);
  return flipped;
}

TEST(ImageTransform, CropsPadsAndFlipsCifar) {
  const ImageTransform transform(ImageRecipe::parse("cifar10-train"));
  const Image image = noisy_image(32, 32);
  const Bytes expected =
      step_by_step(transform.recipe(), image.view(), choose_padded_crop(kKey, 32, 32, 4, 32, 32));
  EXPECT_EQ(applied<std::uint8_t>(transform, image.view()), expected);
  EXPECT_EQ(
      applied<std::uint8_t>(transform, std::span<const std::uint8_t>(encode_png(image.view()))),
      expected);
}

TEST(ImageTransform, CropsResizesAndFlipsImageNet) {
  ImageRecipe recipe = ImageRecipe::parse("imagenet-train");
  recipe.scaled_decoding = false;
  recipe.height = 48;
  recipe.width = 40;
  const ImageTransform transform(recipe);
  const Bytes jpeg = encode_jpeg(noisy_image(150, 120).view());
  JpegDecoder decoder;
  Image memory;
  decoder.open(jpeg);
  const ImageView pixels = decoder.decode(3, memory);
  const Bytes expected = step_by_step(recipe, pixels, choose_resized_crop(kKey, 150, 120, {}));
  EXPECT_EQ(applied<std::uint8_t>(transform, std::span<const std::uint8_t>(jpeg)), expected);
  EXPECT_EQ(applied<std::uint8_t>(transform, pixels), expected);
}

TEST(ImageTransform, ScaledDecodingShowsTheSamePart) {
  const Bytes jpeg = encode_jpeg(smooth_image(300, 400).view(), {JpegColor::ycc_420, 95});
  for (const char* name : {"imagenet-train", "imagenet-test"}) {
    ImageRecipe recipe = ImageRecipe::parse(name);
    recipe.height = recipe.width = 20;
    if (std::holds_alternative<ResizedCenter>(recipe.geometry)) recipe.geometry = ResizedCenter{23};
    recipe.filter = Filter::antialiased;
    recipe.scaled_decoding = true;
    const ImageTransform scaled(recipe);
    recipe.scaled_decoding = false;
    const ImageTransform plain(recipe);
    for (int record = 0; record < 20; ++record) {
      const SampleKey key = {1, 0, record};
      const Bytes left = applied<std::uint8_t>(scaled, std::span<const std::uint8_t>(jpeg), key);
      const Bytes right = applied<std::uint8_t>(plain, std::span<const std::uint8_t>(jpeg), key);
      EXPECT_LE(difference(view_of(left, 20, 20, 3), view_of(right, 20, 20, 3)).largest, 6)
          << name << " " << record;
    }
  }
}

/// Resizes the whole image, then crops it.
Bytes middle_after_all(const ImageView& image, int height, int width, Filter filter,
                       const Rectangle& middle) {
  Bytes all(static_cast<std::size_t>(height) * width * 3);
  PixelSink sink(all, height, width, 3);
  Resizer().resize(whole(image), filter, false, sink);
  return pixels_of(view_of(all, height, width, 3).crop(middle));
}

TEST(ImageTransform, EvaluatesTheMiddleOfTheResizedImage) {
  ImageRecipe recipe = ImageRecipe::parse("imagenet-test");
  recipe.geometry = ResizedCenter{32};
  recipe.height = recipe.width = 28;
  for (const Filter filter : {Filter::bilinear, Filter::antialiased, Filter::area}) {
    recipe.filter = filter;
    const ImageTransform transform(recipe);
    // 32 rows, and 97 * 32 / 60 = 51.7 columns, cut to 51.
    const Image wide = noisy_image(60, 97);
    EXPECT_EQ(applied<std::uint8_t>(transform, wide.view()),
              middle_after_all(wide.view(), 32, 51, filter, {12, 2, 28, 28}));
    // 85 rows of 53.
    const Image high = noisy_image(53, 20);
    EXPECT_EQ(applied<std::uint8_t>(transform, high.view()),
              middle_after_all(high.view(), 84, 32, filter, {2, 28, 28, 28}));
  }
}

TEST(ImageTransform, EvaluatesAllOfASquareThatFits) {
  ImageRecipe recipe = ImageRecipe::parse("imagenet-test");
  recipe.geometry = ResizedCenter{224};
  for (const int size : {100, 225, 375}) {
    const Image image = noisy_image(size, size);
    EXPECT_EQ(applied<std::uint8_t>(ImageTransform(recipe), image.view()),
              middle_after_all(image.view(), 224, 224, Filter::antialiased, {0, 0, 224, 224}));
  }
}

TEST(ImageTransform, ProcessesStripsOfAnyLength) {
  const Image image = constant_image(1, 1 << 24, {9, 9, 9});
  for (const char* name : {"imagenet-test", "imagenet-train"}) {
    const ImageTransform transform(ImageRecipe::parse(name));
    EXPECT_EQ(applied<std::uint8_t>(transform, image.view()), Bytes(transform.output_size(), 9));
  }
}

TEST(ImageTransform, FloatsAreTheNormalizedBytes) {
  ImageRecipe recipe = ImageRecipe::parse("cifar10-train");
  recipe.cutout = 8;
  for (const bool jitter : {false, true}) {
    if (jitter) recipe.jitter = {0.4, 0.4, 0.4};
    const ImageTransform transform(recipe);
    const Image image = noisy_image(32, 32);
    for (int record = 0; record < 10; ++record) {
      const Bytes bytes = applied<std::uint8_t>(transform, image.view(), {1, 2, record});
      std::vector<float> expected(bytes.size());
      Normalizer(recipe.normalization, 3).normalize(bytes, expected);
      EXPECT_EQ(applied<float>(transform, image.view(), {1, 2, record}), expected);
    }
  }
}

TEST(ImageTransform, CutsOutTheMeanColor) {
  ImageRecipe recipe = ImageRecipe::parse("cifar10-test");
  recipe.cutout = 8;
  const Bytes output =
      applied<std::uint8_t>(ImageTransform(recipe), constant_image(32, 32, {0, 0, 0}).view());
  const Rectangle hole = choose_cutout(kKey, 32, 32, 8);
  const ImageView view = view_of(output, 32, 32, 3);
  EXPECT_EQ(pixels_of(view.crop({hole.x, hole.y, 1, 1})), (Bytes{125, 123, 114}));
  int filled = 0;
  for (const std::uint8_t value : output) filled += value != 0 ? 1 : 0;
  EXPECT_EQ(filled, hole.width * hole.height * 3);
}

TEST(ImageTransform, ErasesARectangleOfTheMeanColor) {
  const ImageTransform transform(ImageRecipe::parse("resize=32,normalize=cifar10,erase=1"));
  const Bytes output = applied<std::uint8_t>(transform, constant_image(32, 32, {0, 0, 0}).view());
  const Rectangle hole = choose_erasing(kKey, 32, 32, 1).value();
  const ImageView view = view_of(output, 32, 32, 3);
  EXPECT_EQ(pixels_of(view.crop({hole.x, hole.y, 1, 1})), (Bytes{125, 123, 114}));
  EXPECT_EQ(std::ranges::count_if(output, [](std::uint8_t value) { return value != 0; }),
            hole.width * hole.height * 3);
}

TEST(ImageTransform, JittersTheOutput) {
  ImageRecipe recipe = ImageRecipe::parse("cifar10-test");
  recipe.jitter = {.brightness = 0.8, .contrast = 0.5, .saturation = 0.5};
  Image image = noisy_image(32, 32);
  const Bytes output = applied<std::uint8_t>(ImageTransform(recipe), image.view());
  jitter_colors(choose_color_jitter(kKey, recipe.jitter), image.span());
  EXPECT_EQ(output, pixels_of(image.view()));
}

/// One number for everything that is chosen and computed: it must not depend on compiler,
/// optimization or machine, and changing it changes all trainings.
TEST(ImageTransform, IsBitIdenticalEverywhere) {
  ImageRecipe recipe = ImageRecipe::parse("imagenet-train");
  recipe.jitter = {0.4, 0.4, 0.4};
  recipe.cutout = 56;
  const ImageTransform transform(recipe);
  const Image image = noisy_image(375, 500);
  std::string bytes;
  for (int record = 0; record < 8; ++record) {
    const std::vector<float> output =
        applied<float>(transform, image.view(), {.seed = 1, .epoch = 2, .record_id = record});
    bytes.append(reinterpret_cast<const char*>(output.data()), output.size() * sizeof(float));
    const Mixup mixup = choose_mixup({1, 2, record}, 1000, 0.2);
    bytes.append(fmt::format("{} {}", mixup.partner, mixup.weight));
  }
  EXPECT_EQ(crc32c(bytes), 2589280657u);
}

TEST(ImageTransform, NoneScalesToUnitRange) {
  const ImageTransform transform(ImageRecipe::parse("none", 1, 2, 1));
  EXPECT_EQ(applied<float>(transform, constant_image(1, 2, {51}).view()),
            (std::vector<float>{0.2f, 0.2f}));
}

TEST(ImageTransform, ReportsTheRequiredSize) {
  const ImageTransform transform(ImageRecipe::parse("cifar10-test"));
  EXPECT_EQ(
      data_error_of([&] { applied<float>(transform, noisy_image(32, 33).view()); }),
      "[image recipe cifar10-test] expected --image-size N, with which a training resizes all "
      "images to N x N, or images of 32 x 32; one is 32 x 33");
  EXPECT_EQ(data_error_of([&] { applied<float>(transform, noisy_image(32, 32, 1).view()); }),
            "[image recipe cifar10-test] expected images of 3 channels; one has 1");
}

TEST(ImageTransform, IsIdenticalOnAllThreads) {
  const ImageTransform transform(ImageRecipe::parse("imagenet-train"));
  std::vector<Bytes> files;
  for (int i = 0; i < 6; ++i) files.push_back(encode_jpeg(noisy_image(60 + 20 * i, 90).view()));
  std::vector<std::vector<std::vector<float>>> outputs(3);
  std::vector<std::thread> threads;
  for (auto& mine : outputs) {
    threads.emplace_back([&transform, &files, &mine] {
      ImageScratch scratch;
      for (int i = 0; i < 6; ++i) {
        mine.emplace_back(transform.output_size());
        transform.apply(std::span<const std::uint8_t>(files[static_cast<std::size_t>(i)]),
                        {1, 1, i}, std::span<float>(mine.back()), scratch);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
}

}  // namespace
}  // namespace lockstep::inline v0::data
