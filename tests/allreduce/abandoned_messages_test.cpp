// Reductions that are abandoned while their messages are in flight. MPI cannot cancel these, and
// must not access memory that the caller has freed or reused.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/allreduce/algorithm/call_exchange.h"
#include "lockstep/allreduce/algorithm/message_group.h"
#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"
#include "tests/support/mpi_ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr std::size_t kCount = std::size_t{1} << 20;  // 4 MiB of float32
constexpr RingOptions kOptions{.segment_bytes = std::size_t{256} << 10};
constexpr std::byte kFill{0xF5};
// The delay is the subject: longer than any time after which a message might seem complete.
constexpr std::chrono::milliseconds kWithoutMpi(300);

/// Memory with a fill pattern, which reveals later writes.
class Reused {
 public:
  explicit Reused(std::size_t bytes) : memory_(device::HostAllocator().allocate(bytes)) { fill(); }
  void fill() { std::ranges::fill(bytes(), kFill); }
  bool is_untouched() const {
    return std::ranges::all_of(memory_.as<std::byte>(),
                               [](std::byte byte) { return byte == kFill; });
  }
  std::span<std::byte> bytes() const { return memory_.as<std::byte>(); }

 private:
  device::Buffer memory_;
};

class AbandonedMessages : public ::testing::Test {
 protected:
  void SetUp() override {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1) GTEST_SKIP() << "one rank sends no messages";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    ranks_ = transport_of();
    ranks_->abandon();  // messages remain there
  }

  /// Advances `reduction` as far as possible while rank 0, which has started it too, does not call
  /// MPI.
  template <typename Reduction>
  void abandon(Reduction& reduction) const {
    reduction.advance();
    if (rank_ == 0) return std::this_thread::sleep_for(kWithoutMpi);
    const auto end = std::chrono::steady_clock::now() + kWithoutMpi / 3;
    while (!reduction.is_done() && std::chrono::steady_clock::now() < end) reduction.advance();
  }

  /// Lets MPI complete messages in flight, on all ranks.
  static void make_progress() {
    for (int round = 0; round < 3; ++round) {
      MPI_Barrier(MPI_COMM_WORLD);
      int arrived = 0;
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      while (std::chrono::steady_clock::now() < end)
        MPI_Iprobe(MPI_ANY_SOURCE, 12345, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
    }
  }

  /// `make(values, buffers)` starts a reduction, which is abandoned. Its memory is then reused.
  template <typename Make>
  void expect_no_access_to_reused_memory(std::size_t count, Make make) {
    Reused values(count * sizeof(float));
    {
      MessageBuffers buffers;
      auto reduction = make(Values{values.bytes().data(), count, ElementType::float32}, buffers);
      abandon(reduction);
    }
    values.fill();
    // The size of the message buffers.
    const Reused same_size(2 * kOptions.segments_in_flight * kOptions.segment_bytes);
    make_progress();
    EXPECT_TRUE(values.is_untouched());
    EXPECT_TRUE(same_size.is_untouched());
  }

  int rank_ = 0;
  std::shared_ptr<Transport> ranks_;
};

TEST_F(AbandonedMessages, RingDoesNotAccessCallerMemory) {
  for (const auto part : {RingReduction::Part::all, RingReduction::Part::reduce_scatter,
                          RingReduction::Part::all_gather})
    expect_no_access_to_reused_memory(kCount, [&](const Values& values, MessageBuffers& buffers) {
      return RingReduction(*ranks_, values, ReduceOp::sum, part, kOptions, buffers);
    });
}

TEST_F(AbandonedMessages, KeepAKeptBufferAlive) {
  {
    MessageBuffers buffers;
    const device::Buffer kept =
        buffers.keep(device::HostAllocator().allocate(kCount * sizeof(float)));
    auto* data = static_cast<std::byte*>(kept.data());
    ASSERT_TRUE(buffers.keeps(data, kept.size()));
    ASSERT_FALSE(buffers.keeps(data + 1, kept.size()));
    RingReduction reduction(*ranks_, {data, kCount, ElementType::float32}, ReduceOp::sum,
                            RingReduction::Part::all, kOptions, buffers);
    abandon(reduction);
  }
  const Reused same_size(kCount * sizeof(float));
  make_progress();
  EXPECT_TRUE(same_size.is_untouched());
}

struct SmallReduction : CallExchange {
  SmallReduction(Transport& ranks, const Values& values) : CallExchange(ranks, bytes_of(values)) {
    start(Call::all_reduce(values, ReduceOp::sum), values.data);
  }
};

TEST_F(AbandonedMessages, ValuesSentWithCallsDoNotAccessCallerMemory) {
  expect_no_access_to_reused_memory(kCount, [&](const Values& values, MessageBuffers& /*unused*/) {
    return SmallReduction(*ranks_, values);
  });
}

TEST_F(AbandonedMessages, LeavingFirstRankDoesNotAccessCallerMemory) {
  const Communicator ring(make_ring(ranks_));
  Reused values(kCount * sizeof(float));
  if (rank_ == 0) {
    ring.abort("its data set is unreadable");
    std::this_thread::sleep_for(kWithoutMpi);
  } else {
    EXPECT_THROW(
        ring.all_reduce(std::span(reinterpret_cast<float*>(values.bytes().data()), kCount)).wait(),
        Error);
  }
  values.fill();
  make_progress();
  EXPECT_TRUE(values.is_untouched());
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
