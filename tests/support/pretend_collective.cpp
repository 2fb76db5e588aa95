#include "tests/support/pretend_collective.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"

namespace lockstep::inline v0::pretend {
namespace {

using allreduce::ElementType;
using allreduce::ReduceOp;

constexpr std::size_t kChunkBytes = 16384;

// Arguments that must be equal on all members.
struct Arguments {
  int kind = 0;
  int type = 0;
  int op = 0;
  int root = 0;
  std::size_t count = 0;
  bool operator==(const Arguments&) const = default;
};

ElementType type_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return ElementType::float32;
    case ncclFloat64:
      return ElementType::float64;
    case ncclFloat16:
      return ElementType::float16;
    case ncclBfloat16:
      return ElementType::bfloat16;
    case ncclUint8:
      return ElementType::uint8;
    case ncclInt32:
      return ElementType::int32;
    case ncclInt64:
      return ElementType::int64;
    default:
      usage_error("a type that no member has");
  }
}

ReduceOp operation_of(ncclRedOp_t op) {
  if (op == ncclSum) return ReduceOp::sum;
  if (op == ncclMax) return ReduceOp::max;
  if (op == ncclMin) return ReduceOp::min;
  if (op == ncclProd) return ReduceOp::product;
  usage_error("an operation other than sum, max, min and product");
}

enum Kind { all_reduce, reduce, broadcast };

}  // namespace

struct alignas(64) SharedCollective::Slot {
  std::atomic<std::uint64_t> round;
  int gpu;
  Arguments arguments;
  std::byte chunk[kChunkBytes];
};

struct SharedCollective::Board {
  std::atomic<int> joined;
  Slot slots[kMaxMembers];
};

void usage_error(const char* how) {
  std::fprintf(stderr, "NCCL was misused: %s\n", how);
  std::abort();
}

std::size_t width_of(ncclDataType_t type) { return allreduce::bytes_per_element(type_of(type)); }

SharedSegment SharedCollective::create() { return SharedSegment::create(sizeof(Board)); }

SharedCollective::SharedCollective(SharedSegment segment, int rank, int size)
    : segment_(std::move(segment)),
      board_(std::launder(reinterpret_cast<Board*>(segment_.data()))),
      rank_(rank),
      size_(size) {
  if (size > kMaxMembers) usage_error("too many members");
}

SharedCollective::Slot& SharedCollective::slot(int rank) const { return board_->slots[rank]; }

void SharedCollective::join(int gpu) {
  slot(rank_).gpu = gpu;
  board_->joined.fetch_add(1);
}

bool SharedCollective::all_have_joined() const { return board_->joined == size_; }

bool SharedCollective::share_a_gpu() const {
  for (int one = 0; one < size_; ++one)
    for (int other = 0; other < one; ++other)
      if (slot(one).gpu == slot(other).gpu) return true;
  return false;
}

// Returns false once aborted.
bool SharedCollective::synchronize() {
  slot(rank_).round.store(++round_, std::memory_order_release);
  for (int rank = 0; rank < size_; ++rank)
    while (slot(rank).round.load(std::memory_order_acquire) < round_) {
      if (aborted_) return false;
      std::this_thread::yield();
    }
  return true;
}

void SharedCollective::check_agreement() const {
  for (int rank = 1; rank < size_; ++rank)
    if (!(slot(rank).arguments == slot(0).arguments))
      usage_error("members enqueued different operations");
}

void SharedCollective::reduce_chunks(const Collective& collective, std::size_t begin,
                                     std::size_t count) {
  const std::size_t width = width_of(collective.type);
  std::byte* to = collective.receive + begin * width;
  if (collective.kind == Collective::broadcast) {
    std::memcpy(to, slot(collective.root).chunk, count * width);
    return;
  }
  if (collective.kind == Collective::reduce && collective.root != rank_) return;
  if (size_ == 1) {
    std::memcpy(to, slot(0).chunk, count * width);
    return;
  }
  std::vector<const std::byte*> chunks;
  for (int rank = 0; rank < size_; ++rank) chunks.push_back(slot(rank).chunk);
  allreduce::reduce_slice(chunks, std::array{to}, {0, count}, type_of(collective.type),
                          operation_of(collective.op));
}

void SharedCollective::perform(const Collective& collective) {
  Slot& own = slot(rank_);
  own.arguments = {collective.kind, collective.type, collective.op, collective.root,
                   collective.count};
  if (!synchronize()) return;
  check_agreement();
  if (!synchronize()) return;
  const std::size_t width = width_of(collective.type);
  const std::size_t most = kChunkBytes / width;
  for (std::size_t begin = 0; begin < collective.count; begin += most) {
    const std::size_t count = std::min(most, collective.count - begin);
    if (collective.kind != Collective::broadcast || collective.root == rank_)
      std::memcpy(own.chunk, collective.send + begin * width, count * width);
    if (!synchronize()) return;
    reduce_chunks(collective, begin, count);
    if (!synchronize()) return;
  }
}

}  // namespace lockstep::inline v0::pretend
