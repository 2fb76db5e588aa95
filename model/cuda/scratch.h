// Parts of an operation's scratch memory.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::model::cuda {

/// Adds parts up; each begins at a multiple of 256 bytes of the whole, which libraries ask of a workspace.
class ScratchPlan {
 public:
  static constexpr std::size_t kAlignment = 256;

  /// Where a part of `bytes` begins.
  std::size_t add(std::size_t bytes) {
    const std::size_t begin = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
  /// What to ask of the plan, whose memory is aligned to less.
  std::size_t bytes() const { return bytes_ == 0 ? 0 : bytes_ + kAlignment; }

 private:
  std::size_t bytes_ = 0;
};

/// The part of `scratch` that begins at `offset` of its plan.
inline std::byte* part_of(std::span<std::byte> scratch, std::size_t offset) {
  const auto address = reinterpret_cast<std::size_t>(scratch.data());
  const std::size_t aligned =
      (address + ScratchPlan::kAlignment - 1) / ScratchPlan::kAlignment * ScratchPlan::kAlignment;
  return scratch.data() + (aligned - address) + offset;
}

}  // namespace lockstep::model::cuda
