#include "lockstep/checkpoint/safetensors.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

void read(Bytes bytes) {
  const MemoryFile memory(bytes);
  const checkpoint::SafetensorsFile file(memory.path());
  for (const checkpoint::SafetensorsFile::Entry& entry : file.tensors()) {
    tolerate(ErrorCategory::checkpoint, [&] {
      std::vector<float> values(entry.bytes / sizeof(float));
      file.read_widened(entry, values);
    });
    tolerate(ErrorCategory::checkpoint, [&] {
      std::vector<std::int64_t> values(entry.bytes / sizeof(std::int64_t));
      file.read(entry, values);
    });
  }
}

}  // namespace

void read_untrusted(Bytes bytes) {
  tolerate(ErrorCategory::checkpoint, [&] { read(bytes); });
}

}  // namespace lockstep::inline v0::fuzz
