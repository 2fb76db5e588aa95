// Collectives of simulated members on one host through shared memory; members are threads or
// processes.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/system/shared_segment.h"

namespace lockstep::inline v0::pretend {

constexpr int kMaxMembers = 8;

/// Ends the program after a misuse that is undefined in NCCL.
[[noreturn]] void usage_error(const char* how);

struct Collective {
  enum Kind { all_reduce, reduce, broadcast };
  Kind kind{};
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::size_t count = 0;
  ncclDataType_t type{};
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

std::size_t width_of(ncclDataType_t type);

/// One member of a group that communicates through shared memory.
class SharedCollective {
 public:
  static SharedSegment create();
  SharedCollective(SharedSegment segment, int rank, int size);

  void join(int gpu);
  bool all_have_joined() const;
  bool share_a_gpu() const;  ///< after all have joined

  /// Executes the member's part of a collective, and waits for the others; returns early once
  /// aborted.
  void perform(const Collective& collective);
  void abort() { aborted_ = true; }
  bool is_aborted() const { return aborted_; }

  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  struct Slot;
  struct Board;

  Slot& slot(int rank) const;
  bool synchronize();
  void check_agreement() const;
  void reduce_chunks(const Collective& collective, std::size_t begin, std::size_t count);

  SharedSegment segment_;
  Board* board_;
  int rank_;
  int size_;
  std::uint64_t round_ = 0;
  std::atomic<bool> aborted_{false};
};

}  // namespace lockstep::inline v0::pretend
