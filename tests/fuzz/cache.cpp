#include "lockstep/data/source/cached_source.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  constexpr std::int64_t kRecords = 3;
  const MemoryFile file(bytes);
  const data::FileStore store(file.path(), "numbers", kRecords, 12);
  std::vector<std::byte> scratch;
  for (std::int64_t record = 0; record < kRecords; ++record) store.get(record, scratch);
}

}  // namespace lockstep::inline v0::fuzz
