#include "lockstep/data/image/decode_image.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

void read_untrusted(Bytes bytes) {
  using namespace lockstep::data;
  Image memory;
  decode_png(bytes, 3, memory, 1 << 14);
  decode_png(bytes, 1, memory, 1 << 14);
}

}  // namespace lockstep::fuzz
