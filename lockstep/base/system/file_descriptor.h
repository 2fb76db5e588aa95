// Ownership of an open file, socket or pipe.
#pragma once

#include <unistd.h>

#include <utility>

namespace lockstep::inline v0 {

/// Owns a file descriptor, or none (-1).
class FileDescriptor {
 public:
  FileDescriptor() = default;
  /// Owns `number`; -1 for none.
  explicit FileDescriptor(int number) : number_(number) {}
  /// `other` then owns none.
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  /// Exchanges the two.
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor() {
    if (is_open()) ::close(number_);
  }

  int get() const { return number_; }            ///< still owned by this object
  bool is_open() const { return number_ >= 0; }  ///< whether it owns one

 private:
  int number_ = -1;
};

}  // namespace lockstep::inline v0
