#include "tests/bench/photograph.h"

#include <cstddef>  // required by jpeglib.h
#include <cstdio>

#include <jpeglib.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/random/random.h"

namespace lockstep::inline v0::bench {

std::vector<std::uint8_t> photograph(int height, int width, std::uint64_t seed) {
  const Philox noise(seed);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height) * width * 3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto words = noise.block(static_cast<std::uint64_t>(y), static_cast<std::uint64_t>(x));
      for (int c = 0; c < 3; ++c) {
        const int slope = (x * (c + 2) / 3 + y * (4 - c) / 3) % 400;
        const int value = std::abs(slope - 200) + static_cast<int>(words[c] >> 27);
        pixels[(static_cast<std::size_t>(y) * width + x) * 3 + c] =
            static_cast<std::uint8_t>(std::min(value, 255));
      }
    }
  }
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &memory, &size);
  codec.image_width = static_cast<JDIMENSION>(width);
  codec.image_height = static_cast<JDIMENSION>(height);
  codec.input_components = 3;
  codec.in_color_space = JCS_RGB;
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, 90, TRUE);
  jpeg_start_compress(&codec, TRUE);
  for (int y = 0; y < height; ++y) {
    JSAMPROW row = pixels.data() + static_cast<std::size_t>(y) * width * 3;
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  std::vector<std::uint8_t> bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

}  // namespace lockstep::inline v0::bench
