#include "tests/support/pretend_cuda/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "pretended_nvcc.h"
#include "tests/support/pretend_cuda/fiber.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/streams.h"

namespace lockstep::inline v0::pretend {
namespace {

// Idle fibers of all host threads.
class RestingFibers {
 public:
  // They are never destroyed, because streams are not either.
  static RestingFibers& of_this_process() {
    static auto* resting = new RestingFibers;
    return *resting;
  }

  std::unique_ptr<Fiber> take() {
    const std::lock_guard lock(mutex_);
    if (fibers_.empty()) return std::make_unique<Fiber>();
    std::unique_ptr<Fiber> fiber = std::move(fibers_.back());
    fibers_.pop_back();
    return fiber;
  }

  void give_back(std::vector<std::unique_ptr<Fiber>> fibers) {
    const std::lock_guard lock(mutex_);
    std::ranges::move(fibers, std::back_inserter(fibers_));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

// A reusable barrier and exchange of the lanes in a mask.
struct WarpExchange {
  unsigned mask = 0;
  unsigned arrived = 0;
  unsigned round = 0;
  // Values of this round and of the previous one, which the slowest lane may still read.
  std::array<std::array<unsigned long long, kWarpSize>, 2> values{};
};

class Block {
 public:
  Block(dim3 threads, bool is_backwards, const std::function<void()>& thread)
      : threads_(threads),
        count_(threads.x * threads.y * threads.z),
        is_backwards_(is_backwards),
        thread_(thread),
        warps_((count_ + kWarpSize - 1) / kWarpSize) {}

  void run();
  void sync();
  const unsigned long long* exchange_warp(unsigned mask, unsigned long long value);
  unsigned lane() const { return current_ % kWarpSize; }

 private:
  struct Waiting {
    unsigned thread;
    const WarpExchange* exchange;  // null: the barrier of the block
    Fiber* fiber;
  };

  void choose(unsigned thread);
  void run_threads();
  void end_thread();
  void wait_in(const WarpExchange* exchange);
  void release(const WarpExchange* exchange);
  bool has_ended(unsigned thread) const { return ended_[thread]; }
  unsigned lanes_of(unsigned warp) const;

  dim3 threads_;
  unsigned count_;
  bool is_backwards_;
  const std::function<void()>& thread_;
  std::vector<std::deque<WarpExchange>> warps_;  // a deque keeps addresses stable
  std::vector<Waiting> waiting_;
  std::deque<Waiting> ready_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  unsigned current_ = 0;
  unsigned begun_ = 0;
  std::vector<bool> ended_ = std::vector<bool>(count_);
  unsigned ended_count_ = 0;
  unsigned arrived_ = 0;  // threads that arrived at the barrier of the block
};

constinit thread_local Block* running_block = nullptr;

void Block::choose(unsigned thread) {
  current_ = thread;
  threadIdx = {thread % threads_.x, thread / threads_.x % threads_.y,
               thread / (threads_.x * threads_.y)};
}

// One fiber runs thread after thread until one has to wait.
void Block::run_threads() {
  while (begun_ < count_) {
    const unsigned next = begun_++;
    choose(is_backwards_ ? count_ - 1 - next : next);
    thread_();
    end_thread();
  }
}

void Block::run() {
  while (ended_count_ < count_) {
    if (!ready_.empty()) {
      const Waiting next = ready_.front();
      ready_.pop_front();
      choose(next.thread);
      running_ = next.fiber;
      running_->resume();
    } else if (begun_ < count_) {
      fibers_.push_back(RestingFibers::of_this_process().take());
      running_ = fibers_.back().get();
      running_->start([this] { run_threads(); });
    } else {
      choose(waiting_.front().thread);
      kernel_misused("waits for threads that wait for something else");
    }
  }
  RestingFibers::of_this_process().give_back(std::move(fibers_));
}

void Block::end_thread() {
  ended_[current_] = true;
  ++ended_count_;
  if (arrived_ > 0) kernel_misused("ends without the barrier at which others of its block wait");
  for (const WarpExchange& exchange : warps_[current_ / kWarpSize])
    if (exchange.arrived != 0 && (exchange.mask >> lane() & 1U) != 0)
      kernel_misused("ends without the shuffle at which others of its warp wait for it");
}

void Block::wait_in(const WarpExchange* exchange) {
  const unsigned self = current_;
  Fiber* fiber = running_;
  waiting_.push_back({self, exchange, fiber});
  fiber->suspend();
}

void Block::release(const WarpExchange* exchange) {
  const auto waits_for_it = [&](const Waiting& waiting) { return waiting.exchange == exchange; };
  std::ranges::copy_if(waiting_, std::back_inserter(ready_), waits_for_it);
  std::erase_if(waiting_, waits_for_it);
}

void Block::sync() {
  if (ended_count_ > 0)
    kernel_misused("comes to a barrier that other threads of its block ended without");
  if (++arrived_ < count_) return wait_in(nullptr);
  arrived_ = 0;
  release(nullptr);
}

unsigned Block::lanes_of(unsigned warp) const {
  unsigned lanes = 0;
  for (unsigned lane = 0; lane < kWarpSize && warp * kWarpSize + lane < count_; ++lane)
    if (!ended_[warp * kWarpSize + lane]) lanes |= 1U << lane;
  return lanes;
}

const unsigned long long* Block::exchange_warp(unsigned mask, unsigned long long value) {
  const unsigned warp = current_ / kWarpSize;
  const unsigned bit = 1U << lane();
  if ((mask & bit) == 0) kernel_misused("takes part in a shuffle whose mask leaves it out");
  if ((mask & ~lanes_of(warp)) != 0)
    kernel_misused("takes part in a shuffle with lanes that have ended or are not there");
  auto found = std::ranges::find(warps_[warp], mask, &WarpExchange::mask);
  if (found == warps_[warp].end()) found = warps_[warp].insert(warps_[warp].end(), {.mask = mask});
  WarpExchange& exchange = *found;
  auto& values = exchange.values[exchange.round % 2];
  values[lane()] = value;
  exchange.arrived |= bit;
  if (exchange.arrived != mask) {
    wait_in(&exchange);
    return values.data();
  }
  exchange.arrived = 0;
  ++exchange.round;
  release(&exchange);
  return values.data();
}

std::string text_of(const uint3& place) {
  return fmt::format("({}, {}, {})", place.x, place.y, place.z);
}

void run_block(unsigned block, dim3 blocks, dim3 threads, bool is_backwards,
               const std::function<void()>& thread) {
  blockIdx = {block % blocks.x, block / blocks.x % blocks.y, block / (blocks.x * blocks.y)};
  Block running(threads, is_backwards, thread);
  running_block = &running;
  running.run();
  running_block = nullptr;
}

bool is_possible(dim3 blocks, dim3 threads) {
  return blocks.x > 0 && blocks.y > 0 && blocks.z > 0 && blocks.x <= 0x7fffffff &&
         blocks.y <= 65535 && blocks.z <= 65535 && threads.x > 0 && threads.y > 0 &&
         threads.z > 0 && threads.x <= 1024 && threads.y <= 1024 && threads.z <= 64 &&
         threads.x * threads.y * threads.z <= 1024;
}

std::atomic<std::uint64_t> launches{0};

// No order between blocks, or between threads without a barrier, may matter: every other launch
// runs them backwards.
bool is_turn_of_backwards() {
  thread_local bool was_backwards = true;
  was_backwards = !was_backwards;
  return was_backwards;
}

}  // namespace

void load(const void* kernel) {
  if (!machine().waits_for_all) return;
  static std::mutex mutex;
  static std::set<std::pair<const void*, int>> loaded;
  {
    const std::lock_guard lock(mutex);
    if (!loaded.emplace(kernel, current_gpu()).second) return;
  }
  wait_for_all_streams();
}

cudaError_t launch(dim3 blocks, dim3 threads, cudaStream_t stream, std::function<void()> thread) {
  if (const cudaError_t status = readiness(); status != cudaSuccess) return answer(status);
  if (!is_possible(blocks, threads)) return answer(cudaErrorInvalidConfiguration);
  if (device_of(stream) != current_gpu()) return answer(cudaErrorInvalidResourceHandle);
  ++launches;
  return answer(enqueue(stream, [=, thread = std::move(thread)] {
    const bool is_backwards = is_turn_of_backwards();
    gridDim = blocks;
    blockDim = threads;
    const unsigned count = blocks.x * blocks.y * blocks.z;
    for (unsigned i = 0; i < count; ++i)
      run_block(is_backwards ? count - 1 - i : i, blocks, threads, is_backwards, thread);
  }));
}

std::uint64_t kernel_launches() { return launches; }

void sync_block() { running_block->sync(); }

const unsigned long long* exchange_warp(unsigned mask, unsigned long long value) {
  return running_block->exchange_warp(mask, value);
}

unsigned lane() { return running_block->lane(); }

void kernel_misused(const char* how) {
  usage_error(fmt::format("thread {} of block {} of a kernel {}", text_of(threadIdx),
                          text_of(blockIdx), how));
}

}  // namespace lockstep::inline v0::pretend
