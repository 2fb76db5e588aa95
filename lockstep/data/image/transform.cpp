#include "lockstep/data/image/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/image/augmentation.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/image/resize.h"

namespace lockstep::inline v0::data {
namespace {

/// An image in memory with the interface of a decoder.
class DecodedPixels {
 public:
  DecodedPixels(const ImageView& image, const ImageRecipe& recipe) : image_(image) {
    if (image.channels == recipe.channels) return;
    throw Error(ErrorCategory::data, fmt::format("image recipe {}", recipe.name),
                fmt::format("expected images of {} channels", recipe.channels),
                fmt::format("one has {}", image.channels));
  }
  ImageHeader header() const { return {image_.height, image_.width, image_.channels}; }
  DecodedPart part(const WantedPart& wanted) const { return whole(image_.crop(wanted.part)); }

 private:
  ImageView image_;
};

class EncodedImage {
 public:
  EncodedImage(std::span<const std::uint8_t> bytes, const ImageRecipe& recipe,
               ImageDecoder& decoder)
      : decoder_(&decoder), channels_(recipe.channels), header_(decoder.open(bytes, recipe.exif)) {}
  ImageHeader header() const { return header_; }
  DecodedPart part(const WantedPart& wanted) const { return decoder_->decode(wanted, channels_); }

 private:
  ImageDecoder* decoder_;
  int channels_;
  ImageHeader header_;
};

Rectangle whole_of(const ImageHeader& header) { return {0, 0, header.width, header.height}; }

[[noreturn]] void throw_wrong_size(const ImageRecipe& recipe, const ImageHeader& header) {
  throw Error(ErrorCategory::data, fmt::format("image recipe {}", recipe.name),
              fmt::format("expected --image-size N, with which a training resizes all images to "
                          "N x N, or images of {} x {}",
                          recipe.height, recipe.width),
              fmt::format("one is {} x {}", header.height, header.width));
}

[[noreturn]] void throw_colors(const ImageRecipe& recipe, const ImageHeader& header) {
  throw Error(ErrorCategory::data, fmt::format("image recipe {}", recipe.name),
              fmt::format("expected gray images, or the shape {}x{}x3 for gray and colored ones",
                          recipe.height, recipe.width),
              fmt::format("one has {} channels", header.channels));
}

/// A range of pixels on one axis.
struct Extent {
  double begin = 0;
  double extent = 0;
};

/// The range on an axis of `extent` pixels that becomes the center `output` pixels when the shorter
/// side of `image` is resized to `shorter`.
Extent middle_of(int extent, const ImageHeader& image, int shorter, int output) {
  const int shorter_now = std::min(image.height, image.width);
  const std::int64_t resized = std::int64_t{extent} * shorter / shorter_now;
  const auto scale = static_cast<double>(extent) / static_cast<double>(resized);
  return {static_cast<double>(center_offset(resized, output)) * scale, output * scale};
}

/// The whole pixels around `stretch`, including all that a filter reads for `output` pixels of it.
Extent with_neighbours(const Extent& stretch, int output, int extent) {
  const double reach = std::max(stretch.extent / output, 1.0) + 1;
  const double begin = std::max(std::floor(stretch.begin - reach), 0.0);
  const double end =
      std::min(std::ceil(stretch.begin + stretch.extent + reach), static_cast<double>(extent));
  return {begin, end - begin};
}

/// Applies the geometry of a recipe, of any kind, to one image.
template <typename Source>
struct Geometry {
  const ImageRecipe& recipe;
  const Source& image;
  const SampleKey& key;
  bool flip;
  PixelSink& sink;
  Resizer& resizer;

  void operator()(const AsStored&) const {
    const ImageHeader header = image.header();
    check_size(header);
    // Images used as stored must not lose their colors because the first image, which determines
    // the shape, is gray.
    if (recipe.name == "none" && header.channels > recipe.channels) throw_colors(recipe, header);
    copy(whole_of(header));
  }

  void operator()(const PaddedCrop& crop) const {
    const ImageHeader header = image.header();
    if (crop.exact) check_size(header);
    copy(choose_padded_crop(key, header.height, header.width, crop.padding, recipe.height,
                            recipe.width));
  }

  void operator()(const RandomResizedCrop& crop) const {
    const ImageHeader header = image.header();
    resize(choose_resized_crop(key, header.height, header.width, crop.range));
  }

  /// The center of the resized image is located in the original image, so that nothing else is
  /// decoded or resized.
  void operator()(const ResizedCenter& center) const {
    const ImageHeader header = image.header();
    const int shorter = recipe.shorter_side(center);
    const Extent rows = middle_of(header.height, header, shorter, recipe.height);
    const Extent columns = middle_of(header.width, header, shorter, recipe.width);
    const Extent near_rows = with_neighbours(rows, recipe.height, header.height);
    const Extent near_columns = with_neighbours(columns, recipe.width, header.width);
    const Rectangle near = {static_cast<int>(near_columns.begin), static_cast<int>(near_rows.begin),
                            static_cast<int>(near_columns.extent),
                            static_cast<int>(near_rows.extent)};
    DecodedPart part =
        image.part(wanted(near, static_cast<int>(near.height * recipe.height / rows.extent),
                          static_cast<int>(near.width * recipe.width / columns.extent)));
    const double row_scale = part.height / near.height;
    const double column_scale = part.width / near.width;
    part.y += (rows.begin - near.y) * row_scale;
    part.x += (columns.begin - near.x) * column_scale;
    part.height = rows.extent * row_scale;
    part.width = columns.extent * column_scale;
    resizer.resize(part, recipe.filter, flip, sink);
  }

 private:
  void check_size(const ImageHeader& header) const {
    if (header.height != recipe.height || header.width != recipe.width)
      throw_wrong_size(recipe, header);
  }

  WantedPart wanted(const Rectangle& part, int height, int width) const {
    if (!recipe.scaled_decoding) return {part, part.height, part.width};
    return {part, height, width};
  }

  void copy(const Rectangle& part) const {
    const Rectangle all = whole_of(image.header());
    copy_part(image.part({all, all.height, all.width}).pixels, part, flip, sink);
  }

  void resize(const Rectangle& part) const {
    resizer.resize(image.part(wanted(part, recipe.height, recipe.width)), recipe.filter, flip,
                   sink);
  }
};

PixelSink sink_of(std::span<std::uint8_t> output, const ImageRecipe& recipe, const Normalizer&,
                  std::vector<std::uint8_t>&) {
  return {output, recipe.height, recipe.width, recipe.channels};
}

PixelSink sink_of(std::span<float> output, const ImageRecipe& recipe, const Normalizer& normalizer,
                  std::vector<std::uint8_t>& row) {
  return {output, recipe.height, recipe.width, normalizer, row};
}

ImageRecipe checked(ImageRecipe recipe) {
  recipe.check();
  return recipe;
}

std::array<std::uint8_t, 3> mean_pixel(const ChannelNormalization& normalization) {
  std::array<std::uint8_t, 3> mean{};
  std::ranges::transform(
      std::span(normalization.mean).first(mean.size()), mean.begin(), [](float value) {
        return static_cast<std::uint8_t>(std::lround(std::clamp(value, 0.0f, 1.0f) * 255));
      });
  return mean;
}

}  // namespace

struct ImageScratch::State {
  ImageDecoder decoder;
  Resizer resizer;
  Image pixels;                   // the resized image
  std::vector<std::uint8_t> row;  // one row of it
};

ImageScratch::ImageScratch() : state_(std::make_unique<State>()) {}
ImageScratch::~ImageScratch() = default;

ImageTransform::ImageTransform(ImageRecipe recipe)
    : recipe_(checked(std::move(recipe))),
      normalizer_(recipe_.normalization, recipe_.channels),
      mean_(mean_pixel(recipe_.normalization)) {}

std::size_t ImageTransform::output_size() const {
  return static_cast<std::size_t>(recipe_.height) * recipe_.width * recipe_.channels;
}

ImageScratch& ImageTransform::scratch_of_this_thread() {
  thread_local ImageScratch scratch;
  return scratch;
}

template <typename Source, typename Value>
void ImageTransform::apply_to(const Source& image, const SampleKey& key, std::span<Value> output,
                              ImageScratch& memory) const {
  ImageScratch::State& scratch = *memory.state_;
  PixelSink sink = sink_of(output, recipe_, normalizer_, scratch.row);
  if (recipe_.cutout > 0)
    sink.cut_out(choose_cutout(key, recipe_.height, recipe_.width, recipe_.cutout), mean_);
  if (recipe_.erase > 0)
    if (const auto hole = choose_erasing(key, recipe_.height, recipe_.width, recipe_.erase))
      sink.cut_out(*hole, mean_);
  const bool flip = recipe_.flip > 0 && choose_flip(key, recipe_.flip);
  const auto apply_geometry = [&](PixelSink& to) {
    std::visit(Geometry<Source>{recipe_, image, key, flip, to, scratch.resizer}, recipe_.geometry);
  };
  if (!recipe_.jitter.any()) {
    apply_geometry(sink);
    return;
  }
  // Contrast needs the mean of all pixels before it can change the first: the only pass that cannot
  // be fused.
  scratch.pixels.reshape(recipe_.height, recipe_.width, recipe_.channels);
  PixelSink bytes({scratch.pixels.span().pixels, output_size()}, recipe_.height, recipe_.width,
                  recipe_.channels);
  apply_geometry(bytes);
  jitter_colors(choose_color_jitter(key, recipe_.jitter), scratch.pixels.span());
  copy_part(scratch.pixels.view(), {0, 0, recipe_.width, recipe_.height}, false, sink);
}

void ImageTransform::apply(std::span<const std::uint8_t> encoded, const SampleKey& key,
                           std::span<std::uint8_t> output, ImageScratch& scratch) const {
  apply_to(EncodedImage(encoded, recipe_, scratch.state_->decoder), key, output, scratch);
}

void ImageTransform::apply(std::span<const std::uint8_t> encoded, const SampleKey& key,
                           std::span<float> output, ImageScratch& scratch) const {
  apply_to(EncodedImage(encoded, recipe_, scratch.state_->decoder), key, output, scratch);
}

void ImageTransform::apply(const ImageView& image, const SampleKey& key,
                           std::span<std::uint8_t> output, ImageScratch& scratch) const {
  apply_to(DecodedPixels(image, recipe_), key, output, scratch);
}

void ImageTransform::apply(const ImageView& image, const SampleKey& key, std::span<float> output,
                           ImageScratch& scratch) const {
  apply_to(DecodedPixels(image, recipe_), key, output, scratch);
}

}  // namespace lockstep::inline v0::data
