#include "tests/fuzz/fuzz.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

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

}  // namespace lockstep::fuzz
