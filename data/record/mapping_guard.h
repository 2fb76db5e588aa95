// Keeps a mapped file that shrinks, or whose disk fails, from ending the process.
#pragma once

#include <cstddef>

namespace lockstep::data {

/// A page of a mapping that cannot be read is reported as the signal SIGBUS. While a guard lives, such a page of its
/// mapping reads as zeros instead, and is_intact() says so. Everybody else's SIGBUS goes to whoever handled it before.
/// Move-only.
class MappingGuard {
 public:
  /// Guards nothing.
  MappingGuard() = default;
  /// Guards the `bytes` bytes mapped at `begin`, a multiple of the page size; unmapping them before the guard ends is
  /// the owner's part, with nobody reading any more. Guards nothing where kMostGuards live already, or where somebody
  /// took SIGBUS after us.
  MappingGuard(const void* begin, std::size_t bytes);
  MappingGuard(MappingGuard&& other) noexcept;
  MappingGuard& operator=(MappingGuard&& other) noexcept;
  ~MappingGuard();

  /// Whether it guards anything.
  explicit operator bool() const noexcept { return slot_ != nullptr; }
  /// False from the moment at which a page could not be read: what was read since may be zeros. Any thread.
  bool is_intact() const noexcept;

  static constexpr std::size_t kMostGuards = 1024;

  struct Slot;

 private:
  Slot* slot_ = nullptr;
};

}  // namespace lockstep::data
