#include "lockstep/data/image/decode_image.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::string_view kPng = "PNG";

/// Weights of red and green in luma, in libpng's units of 1/100000; blue has the remainder.
constexpr png_fixed_point kRedOfLuma = kLumaThousandths[0] * 100;
constexpr png_fixed_point kGreenOfLuma = kLumaThousandths[1] * 100;

/// Reads one image. libpng keeps no state between images.
class PngReader {
 public:
  PngReader(std::span<const std::uint8_t> bytes, std::int64_t max_pixels) : rest_(bytes) {
    // libpng's warnings concern other data than pixels: color profiles, times, texts. Damaged
    // pixels are errors.
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, leave,
                                  [](png_structp, png_const_charp) {});
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw_damaged_image(kPng, "out of memory");
    }
    try {
      read_header(max_pixels);
    } catch (...) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw;
    }
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  ImageHeader header() const {
    const bool colored = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) != 0;
    return {static_cast<int>(png_get_image_height(png_, info_)),
            static_cast<int>(png_get_image_width(png_, info_)), colored ? 3 : 1};
  }

  void read(const ImageSpan& image) {
    guard([this, &image] {
      set_channels(image.channels);
      const int passes = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      if (png_get_rowbytes(png_, info_) != static_cast<std::size_t>(image.stride))
        png_error(png_, "unexpected row size");
      for (int pass = 0; pass < passes; ++pass) {
        for (int y = 0; y < image.height; ++y) png_read_row(png_, image.row(y), nullptr);
      }
      png_read_end(png_, nullptr);
    });
  }

 private:
  [[noreturn]] static void leave(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->message_.data(), message, self->message_.size() - 1);
    std::longjmp(self->jump_, 1);
  }

  static void read_bytes(png_structp png, png_bytep to, std::size_t count) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self->rest_.size()) png_error(png, "Read Error: the file ends");
    std::memcpy(to, self->rest_.data(), count);
    self->rest_ = self->rest_.subspan(count);
  }

  /// Calls `function`, which libpng may leave with longjmp: it must not own resources.
  template <typename Function>
  void guard(Function function) {
    if (setjmp(jump_) != 0) throw_damaged_image(kPng, message_.data());
    function();
  }

  void read_header(std::int64_t max_pixels) {
    guard([this, max_pixels] {
      const auto max_side =
          static_cast<png_uint_32>(std::min<std::int64_t>(max_pixels, PNG_UINT_31_MAX));
      png_set_user_limits(png_, max_side, max_side);
      // Texts, color profiles, palettes and times are not needed, and a file of some MB may have GB
      // of them, compressed. Negative: all such chunks.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_set_read_fn(png_, this, read_bytes);
      png_read_info(png_, info_);
    });
    check_image_size(kPng, png_get_image_height(png_, info_), png_get_image_width(png_, info_),
                     max_pixels);
  }

  void set_channels(int channels) {
    png_set_scale_16(png_);
    png_set_expand(png_);
    png_set_strip_alpha(png_);
    const int stored = header().channels;
    if (stored == 1 && channels == 3) png_set_gray_to_rgb(png_);
    if (stored != 3 || channels != 1) return;
    // Uses the stored values, ignoring the gamma of the file.
    png_set_gamma_fixed(png_, PNG_FP_1, PNG_FP_1);
    png_set_rgb_to_gray_fixed(png_, PNG_ERROR_ACTION_NONE, kRedOfLuma, kGreenOfLuma);
  }

  std::span<const std::uint8_t> rest_;
  std::array<char, 160> message_{};
  std::jmp_buf jump_{};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

ImageHeader read_png_header(std::span<const std::uint8_t> bytes, std::int64_t max_pixels) {
  return PngReader(bytes, max_pixels).header();
}

ImageView decode_png(std::span<const std::uint8_t> bytes, int channels, Image& memory,
                     std::int64_t max_pixels) {
  PngReader reader(bytes, max_pixels);
  const ImageHeader header = reader.header();
  memory.reshape(header.height, header.width, channels);
  reader.read(memory.span());
  return memory.view();
}

}  // namespace lockstep::inline v0::data
