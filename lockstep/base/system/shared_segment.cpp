#include "lockstep/base/system/shared_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {

namespace {

// Stored at the end of the memory. open() compares it before mapping the memory.
struct Label {
  std::array<std::uint64_t, 2> nonce{};
  std::uint64_t serial = 0;
  std::uint64_t bytes = 0;  // before the label, without padding
};

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::uint64_t label_offset(std::uint64_t bytes) {
  return (bytes + sizeof(Label) - 1) / sizeof(Label) * sizeof(Label);
}
std::uint64_t mapped_bytes(std::uint64_t bytes) { return label_offset(bytes) + sizeof(Label); }

SharedSegment::Owner make_owner() {
  SharedSegment::Owner owner;
  struct stat status {};
  if (::stat("/proc/self/ns/pid", &status) == 0) owner.pid_namespace = status.st_ino;
  while (::getrandom(owner.nonce.data(), sizeof(owner.nonce), 0) != sizeof(owner.nonce)) {
  }
  return owner;
}

/// Why the open file is not the segment; empty if it is. Reads only the label and writes nothing.
std::string mismatch(int descriptor, const SharedSegment::Handle& handle, Label& label) {
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return "its file is not sealed memory";
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return std::strerror(errno);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < sizeof(Label)) return "the memory is too small";
  if (::pread(descriptor, &label, sizeof(label), static_cast<off_t>(size - sizeof(label))) !=
      sizeof(label))
    return "the memory cannot be read";
  if (label.nonce != handle.owner.nonce || label.serial != handle.serial)
    return "that process ID belongs to another process";
  if (label.bytes > size || mapped_bytes(label.bytes) != size)
    return "the memory has a different size";
  return {};
}

FileDescriptor open_file(const SharedSegment::Handle& handle) {
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.owner.process, handle.descriptor);
  return FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// MADV_COLLAPSE of Linux 6.1, which headers of the C library may not define yet. Older systems
// return an error.
constexpr int kMadvCollapse = 25;

/// Maps a file of shared memory at an address with fast access. Returns MAP_FAILED on errors.
///
/// AMD processors select the way of the L1 cache by a hash of address bits 12 to 27: of lines with
/// the same hash and page offset, only one is cached (Lipp et al., "Take A Way: Exploring the
/// Security Implications of AMD's Cache Way Predictors", 2020). A sum reads several segments at
/// equal offsets, and is up to 8 times slower if these are a multiple of 256 MiB apart. So segments
/// begin at different multiples of 2 MiB within 256 MiB.
///
/// In a virtual machine, pages of 4 KiB cost up to two thirds of the speed. Shared memory has no
/// others by default (/sys/kernel/mm/transparent_hugepage/shmem_enabled), so complete huge pages
/// are collapsed explicitly.
void* map(int file, std::size_t bytes) {
  constexpr std::size_t kDistance = std::size_t{256} << 20;
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  constexpr int kFlags = MAP_SHARED | MAP_POPULATE;
  static std::atomic<std::size_t> count = 0;

  void* const reserved = ::mmap(nullptr, bytes + kDistance, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return ::mmap(nullptr, bytes, kAccess, kFlags, file, 0);
  auto* const begin = static_cast<std::byte*>(reserved);
  const std::size_t before =
      (++count * kHugePage - reinterpret_cast<std::uintptr_t>(reserved)) % kDistance;
  void* const data = ::mmap(begin + before, bytes, kAccess, kFlags | MAP_FIXED, file, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, bytes + kDistance);
    errno = error;
    return MAP_FAILED;
  }
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t end = before + (bytes + page - 1) / page * page;
  if (before > 0) ::munmap(reserved, before);
  if (end < bytes + kDistance) ::munmap(begin + end, bytes + kDistance - end);
  if (bytes >= kHugePage) ::madvise(data, bytes / kHugePage * kHugePage, kMadvCollapse);
  return data;
}

[[noreturn]] void fail_to_open(const SharedSegment::Handle& handle, std::string_view why) {
  throw Error(
      ErrorCategory::communication, "shared-memory",
      fmt::format("expected shared memory of process {} on this host", handle.owner.process), why);
}

}  // namespace

SharedSegment::Owner SharedSegment::this_owner() {
  static const Owner first = make_owner();
  Owner owner = first;
  owner.process = ::getpid();  // a forked child has the segments of its parent
  return owner;
}

SharedSegment SharedSegment::create(std::size_t bytes) {
  static std::atomic<std::uint32_t> serials = 0;
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  const Label label{.nonce = this_owner().nonce, .serial = ++serials, .bytes = size};
  FileDescriptor file(::memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open() || ::ftruncate(file.get(), static_cast<off_t>(mapped_bytes(size))) != 0 ||
      ::pwrite(file.get(), &label, sizeof(label), static_cast<off_t>(label_offset(size))) !=
          sizeof(label) ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    throw Error(ErrorCategory::device, "memory",
                fmt::format("expected {} bytes of shared memory", bytes), std::strerror(errno));
  SharedSegment segment(file, size, static_cast<std::uint32_t>(label.serial));
  segment.file_ = std::move(file);
  return segment;
}

bool SharedSegment::exists(const Handle& handle) {
  const FileDescriptor file = open_file(handle);
  Label label;
  return file.is_open() && mismatch(file.get(), handle, label).empty();
}

SharedSegment SharedSegment::open(const Handle& handle) {
  if (handle.owner.pid_namespace != this_owner().pid_namespace)
    fail_to_open(handle, "it is in another PID namespace, such as another container");
  const FileDescriptor file = open_file(handle);
  if (!file.is_open()) fail_to_open(handle, std::strerror(errno));
  Label label;
  if (const std::string why = mismatch(file.get(), handle, label); !why.empty())
    fail_to_open(handle, why);
  return {file, static_cast<std::size_t>(label.bytes), handle.serial};
}

SharedSegment::SharedSegment(const FileDescriptor& file, std::size_t bytes, std::uint32_t serial)
    : bytes_(bytes), serial_(serial) {
  void* data = map(file.get(), mapped_bytes(bytes));
  if (data == MAP_FAILED)
    throw Error(ErrorCategory::device, "memory",
                fmt::format("expected to map {} bytes of shared memory", bytes),
                std::strerror(errno));
  data_ = static_cast<std::byte*>(data);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      serial_(std::exchange(other.serial_, 0)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(serial_, other.serial_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) ::munmap(data_, mapped_bytes(bytes_));
}

SharedSegment::Handle SharedSegment::handle() const { return {this_owner(), file_.get(), serial_}; }

bool SharedSegment::contains(const std::byte* data, std::size_t bytes) const {
  // Only std::less may compare pointers into different arrays.
  return data_ != nullptr && !std::less<>{}(data, data_) &&
         !std::less<>{}(data_ + bytes_, data + bytes);
}

}  // namespace lockstep::inline v0
