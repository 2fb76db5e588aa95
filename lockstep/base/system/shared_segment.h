// Memory that several processes of one host share.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/system/file_descriptor.h"

namespace lockstep::inline v0 {

/// Zeroed anonymous shared memory (memfd). The system frees it when the last process that maps it
/// ends, even by a signal, and no limit on /dev/shm applies. Move-only; the destructor unmaps.
class SharedSegment {
 public:
  /// A process that owns segments. A process ID may refer to a different process in another PID
  /// namespace, so the namespace and a random number drawn by the process are compared as well.
  struct Owner {
    std::uint64_t pid_namespace = 0;
    std::array<std::uint64_t, 2> nonce{};
    std::int32_t process = 0;
  };

  /// Lets another process of this host and user open a segment while its owner keeps it.
  /// Trivially copyable.
  struct Handle {
    Owner owner;
    std::int32_t descriptor = -1;
    /// Distinguishes segments of a process, because descriptors are reused.
    std::uint32_t serial = 0;
  };

  /// This process.
  static Owner this_owner();

  SharedSegment() = default;
  /// Throws Error (device) if the memory is not available.
  static SharedSegment create(std::size_t bytes);
  /// Maps a segment of another process (or of this one). Throws Error (communication) if the system
  /// forbids it, as between containers, if the process has ended, or if the file found is not this
  /// segment.
  static SharedSegment open(const Handle& handle);
  /// Whether the owner still keeps the segment.
  static bool exists(const Handle& handle);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }  ///< page-aligned
  std::size_t size() const { return bytes_; }
  Handle handle() const;  ///< only for a segment that this object created
  bool contains(const std::byte* data, std::size_t bytes) const;

 private:
  SharedSegment(const FileDescriptor& file, std::size_t bytes, std::uint32_t serial);

  FileDescriptor file_;  // open in the owner only
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t serial_ = 0;
};

}  // namespace lockstep::inline v0
