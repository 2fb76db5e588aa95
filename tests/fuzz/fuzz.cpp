#include "tests/fuzz/fuzz.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::fuzz {

void try_untrusted(Bytes bytes) {
  try {
    read_untrusted(bytes);
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::data) throw;
  }
}

MemoryFile::MemoryFile(Bytes content) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  LOCKSTEP_CHECK_OP(descriptor_, >=, 0);
  LOCKSTEP_CHECK_OP(::pwrite(descriptor_, content.data(), content.size(), 0), ==,
                    static_cast<ssize_t>(content.size()));
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

std::filesystem::path MemoryFile::path() const {
  return fmt::format("/proc/self/fd/{}", descriptor_);
}

Directory::Directory() {
  std::string name = std::filesystem::temp_directory_path() / "lockstep-fuzz-XXXXXX";
  LOCKSTEP_CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

Directory::~Directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void Directory::write(const std::string& name, Bytes content) const {
  std::ofstream(path_ / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(content.data()),
             static_cast<std::streamsize>(content.size()));
}

}  // namespace lockstep::fuzz
