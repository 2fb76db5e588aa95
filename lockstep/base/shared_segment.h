// Memory that several processes of one host see.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

/// Zeroed memory without a name: the system takes it back when the last process that maps it is gone, whatever way it
/// went, and no limit on /dev/shm applies. Move-only; the destructor unmaps.
class SharedSegment {
 public:
  /// A process that has segments. A process number alone may mean another process in another PID namespace, so the
  /// namespace and a random number that was drawn in the process are compared as well.
  struct Owner {
    std::uint64_t pid_namespace = 0;
    std::array<std::uint64_t, 2> nonce{};
    std::int32_t process = 0;
  };

  /// How another process of this host and this user finds a segment, for as long as the process that made it keeps it.
  /// May be copied byte by byte.
  struct Handle {
    Owner owner;
    std::int32_t descriptor = -1;
    std::uint32_t serial = 0;  ///< of the segment, in its process: descriptors are used again
  };

  /// This process.
  static Owner this_owner();

  SharedSegment() = default;
  /// Throws Error (device) when the system refuses.
  static SharedSegment create(std::size_t bytes);
  /// Maps a segment of another process (or of this one). Throws Error (communication) where the system forbids it, as
  /// between containers, where the process is gone, and where what is found there is not this segment.
  static SharedSegment open(const Handle& handle);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }  ///< page-aligned
  std::size_t size() const { return bytes_; }
  Handle handle() const;
  bool contains(const std::byte* data, std::size_t bytes) const;

 private:
  SharedSegment(int descriptor, std::size_t bytes, std::uint32_t serial);

  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t serial_ = 0;
};

}  // namespace lockstep
