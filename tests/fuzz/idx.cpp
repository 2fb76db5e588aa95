#include "lockstep/data/source/idx_source.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  const MemoryFile file(bytes);
  data::read_idx(file.path()).elements();
}

}  // namespace lockstep::inline v0::fuzz
