#include "lockstep/checkpoint/manifest.h"

#include <stdlib.h>

#include <fstream>

#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

/// Gone at the end of the program.
class Directory {
 public:
  Directory() : path_(std::filesystem::temp_directory_path() / "lockstep-fuzz-XXXXXX") {
    std::string name = path_.string();
    LOCKSTEP_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

void read_untrusted(Bytes bytes) {
  static const Directory directory;
  std::ofstream(directory.path() / checkpoint::kManifestName, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  tolerate(ErrorCategory::checkpoint, [] {
    const checkpoint::Manifest manifest = checkpoint::read_manifest(directory.path());
    manifest.total_bytes();
    checkpoint::check_sizes(directory.path(), manifest);
  });
}

}  // namespace lockstep::fuzz
