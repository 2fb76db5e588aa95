#include "lockstep/data/image/encode_png.h"

#include <png.h>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {

std::string to_png(const ImageView& image) {
  LOCKSTEP_CHECK(image.channels == 1 || image.channels == 3);
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string file(bytes, '\0');
  constexpr int kKeepBits = 0;
  if (png_image_write_to_memory(&png, file.data(), &bytes, kKeepBits, image.pixels,
                                static_cast<png_int_32>(image.stride), nullptr) == 0)
    throw Error(ErrorCategory::data, "PNG", "expected to encode an image", png.message);
  file.resize(bytes);
  return file;
}

}  // namespace lockstep::inline v0::data
