// Memory that several processes of one host see.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::device {

/// Zeroed memory without a name: the system takes it back when the last process that maps it is gone, whatever way it
/// went, and no limit on /dev/shm applies. Move-only; the destructor unmaps.
class SharedSegment {
 public:
  /// How another process of this host and this user finds a segment, for as long as the process that made it keeps it.
  struct Handle {
    std::int32_t process = 0;
    std::int32_t descriptor = -1;
  };

  SharedSegment() = default;
  /// Throws Error (device) when the system refuses.
  static SharedSegment create(std::size_t bytes);
  /// Maps a segment of another process (or of this one). Throws Error (communication) where the system forbids it, as
  /// between containers, or the process is gone.
  static SharedSegment open(const Handle& handle);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }  ///< page-aligned
  std::size_t size() const { return bytes_; }
  Handle handle() const;
  bool contains(const std::byte* data, std::size_t bytes) const;

 private:
  SharedSegment(int descriptor, std::size_t bytes);

  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::device
