#include "lockstep/data/record/record_index.h"

#include <string>

#include "lockstep/data/record/record_frame.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

void load(std::string_view bytes) {
  const MemoryFile file({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  const auto index =
      data::load_record_index(file.path(), {.stamp = {.size = 1000, .modified_nanos = 2000}});
  if (!index) return;
  for (std::int64_t i = 0; i < index->records(); ++i) index->length(i);
}

}  // namespace

void read_untrusted(Bytes bytes) {
  load(text_of(bytes));
  // A valid checksum lets the code after its check run.
  std::string checked(text_of(bytes));
  const std::uint32_t crc = data::crc32c(checked);
  checked.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  load(checked);
}

}  // namespace lockstep::inline v0::fuzz
