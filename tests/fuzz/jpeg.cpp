#include "lockstep/data/image/decode_image.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  using namespace lockstep::data;
  Orientation::of_jpeg(bytes);
  static JpegDecoder decoder(
      1 << 14);  // reused, as in a reader: one image must not affect the next
  Image memory;
  for (const int denominator : {1, 2, 8}) {
    ImageHeader size = decoder.open(bytes);
    size.width = (size.width + denominator - 1) / denominator;
    size.height = (size.height + denominator - 1) / denominator;
    const int x = size.width / 3;
    const int y = size.height / 4;
    decoder.decode({x, y, size.width / 2 + 1 - size.width / 3, (size.height + 1) / 2}, denominator,
                   3, memory);
  }
  decoder.open(bytes);
  decoder.decode(1, memory);
}

}  // namespace lockstep::inline v0::fuzz
