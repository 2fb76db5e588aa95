// The entry point that libFuzzer calls.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  lockstep::fuzz::try_untrusted({bytes, size});
  return 0;
}
