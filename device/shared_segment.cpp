#include "device/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "device/error.h"

namespace lockstep::device {

SharedSegment SharedSegment::create(std::size_t bytes) {
  const int descriptor = ::memfd_create("lockstep", MFD_CLOEXEC);
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  if (descriptor < 0 || ::ftruncate(descriptor, static_cast<off_t>(size)) != 0) {
    const int reason = errno;
    if (descriptor >= 0) ::close(descriptor);
    throw Error(ErrorCategory::device, "memory", fmt::format("needed {} bytes of shared memory", bytes),
                std::strerror(reason));
  }
  return {descriptor, size};
}

SharedSegment SharedSegment::open(const Handle& handle) {
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    const int reason = errno;
    if (descriptor >= 0) ::close(descriptor);
    throw Error(ErrorCategory::communication, "shared-memory",
                fmt::format("needed the memory of process {} of this host", handle.process), std::strerror(reason));
  }
  return {descriptor, static_cast<std::size_t>(status.st_size)};
}

SharedSegment::SharedSegment(int descriptor, std::size_t bytes) : descriptor_(descriptor), bytes_(bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (data == MAP_FAILED) {
    const int reason = errno;
    ::close(descriptor);
    throw Error(ErrorCategory::device, "memory", fmt::format("needed to map {} bytes of shared memory", bytes),
                std::strerror(reason));
  }
  data_ = static_cast<std::byte*>(data);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (data_ == nullptr) return;
  ::munmap(data_, bytes_);
  ::close(descriptor_);
}

SharedSegment::Handle SharedSegment::handle() const { return {::getpid(), descriptor_}; }

bool SharedSegment::contains(const std::byte* data, std::size_t bytes) const {
  // Pointers into different arrays are compared by std::less alone.
  return data_ != nullptr && !std::less<>{}(data, data_) && !std::less<>{}(data_ + bytes_, data + bytes);
}

}  // namespace lockstep::device
