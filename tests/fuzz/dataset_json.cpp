#include "lockstep/data/source/tfrecord/dataset_json.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  static const Directory directory;
  directory.write(data::kDatasetJson, bytes);
  const auto parts = data::read_dataset_json(directory.path());
  LOCKSTEP_CHECK(parts.has_value());
  for (const auto& [name, part] : *parts) {
    LOCKSTEP_CHECK(part.fits(part));
    data::require_complete(directory.path(), name, part);
  }
}

}  // namespace lockstep::inline v0::fuzz
