#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/base/system/process.h"

namespace lockstep::inline v0 {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

Milliseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Processor time of an empty kernel and of its threads in the 30 ms after it.
Milliseconds time_of_kernel() {
  const Milliseconds before = processor_time();
  start_kernel_threads();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  return processor_time() - before;
}

void keep_cores_busy(std::chrono::milliseconds duration) {
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2 * available_cores(); ++i)
    threads.emplace_back([&stop] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  std::this_thread::sleep_for(duration);
  stop = true;
}

TEST(KernelThreads, StopSpinningOnceCoresWereBusy) {
  for (const char* setting : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_THREAD_LIMIT"})
    if (std::getenv(setting) != nullptr) GTEST_SKIP() << setting << " is set";
  if (available_cores() < 2) GTEST_SKIP() << "there is one core";
  if (std::ifstream("/proc/self/schedstat").peek() == EOF) GTEST_SKIP() << "no /proc/*/schedstat";
  // A separate thread, to keep the settings of this one.
  std::jthread([] {
    set_thread_budget(2);
    Milliseconds spinning{};
    for (int i = 0; i < 3; ++i) spinning = std::max(spinning, time_of_kernel());
    Milliseconds sleeping = spinning;
    for (int i = 0; i < 20 && sleeping > spinning / 4; ++i) {
      keep_cores_busy(std::chrono::milliseconds(500));
      for (int j = 0; j < 3; ++j) sleeping = std::min(sleeping, time_of_kernel());
    }
    EXPECT_LE(sleeping.count(), spinning.count() / 4);
  }).join();
}

}  // namespace
}  // namespace lockstep::inline v0
