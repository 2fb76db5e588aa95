#include "lockstep/checkpoint/manifest.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  static const Directory directory;
  directory.write(checkpoint::kManifestName, bytes);
  tolerate(ErrorCategory::checkpoint, [] {
    const checkpoint::Manifest manifest = checkpoint::read_manifest(directory.path());
    manifest.total_bytes();
    checkpoint::check_sizes(directory.path(), manifest);
  });
}

}  // namespace lockstep::inline v0::fuzz
