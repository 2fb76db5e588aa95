#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/system/file_descriptor.h"

namespace lockstep::inline v0::fuzz {

namespace {

/// Peak of the resident set since reset_peak(). If the kernel cannot reset it, it is that of the
/// process, which detects growth beyond all earlier peaks only.
std::uint64_t peak_bytes() {
  struct rusage usage = {};
  LOCKSTEP_CHECK_OP(::getrusage(RUSAGE_SELF, &usage), ==, 0);
  return static_cast<std::uint64_t>(usage.ru_maxrss) << 10U;
}

/// Resets the peak of the resident set to its current size, and returns that.
std::uint64_t reset_peak() {
  static const FileDescriptor file(::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  [[maybe_unused]] const ssize_t written = ::write(file.get(), "5", 1);
  return peak_bytes();
}

double processor_seconds() {
  struct timespec time = {};
  LOCKSTEP_CHECK_OP(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time), ==, 0);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Cost allowed_cost(std::size_t bytes) {
  // The constant parts are for buffers of a fixed size, and pages of libraries that are touched
  // first. Sanitizers are slow and keep freed memory: LOCKSTEP_FUZZ_COST is then above 1.
  constexpr std::uint64_t kResident = LOCKSTEP_FUZZ_COST * (std::uint64_t{16} << 20U);
  constexpr std::uint64_t kResidentPerByte = LOCKSTEP_FUZZ_COST * 256;
  constexpr double kSeconds = LOCKSTEP_FUZZ_COST * 2;
  constexpr double kSecondsPerByte = LOCKSTEP_FUZZ_COST * 100e-6;
  return {kResident + kResidentPerByte * bytes,
          kSeconds + kSecondsPerByte * static_cast<double>(bytes)};
}

void try_untrusted(Bytes bytes) {
  const std::uint64_t resident = reset_peak();
  const double start = processor_seconds();
  try {
    read_untrusted(bytes);
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::data) throw;
  }
  const Cost cost{peak_bytes() - resident, processor_seconds() - start};
  const Cost allowed = allowed_cost(bytes.size());
  if (cost.resident_bytes > allowed.resident_bytes)
    throw std::runtime_error(fmt::format("{} bytes made {} bytes resident; at most {} are allowed",
                                         bytes.size(), cost.resident_bytes,
                                         allowed.resident_bytes));
  if (cost.seconds > allowed.seconds)
    throw std::runtime_error(fmt::format("{} bytes took {:.1f} s; at most {:.1f} are allowed",
                                         bytes.size(), cost.seconds, allowed.seconds));
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

}  // namespace lockstep::inline v0::fuzz
