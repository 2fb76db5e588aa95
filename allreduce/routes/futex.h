// Waiting asleep for a number to change, between threads or between processes that share its memory.
// (Hubertus Franke, Rusty Russell, "Fuss, futexes and furwocks: fast userlevel locking in Linux", 2002; std::atomic
// waits within one process only.)
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::allreduce {

using FutexWord = std::atomic<std::uint32_t>;

/// Sleeps while `word` is `expected`, for `longest` at most; may wake early.
void sleep_while(const FutexWord& word, std::uint32_t expected, std::chrono::nanoseconds longest);

/// Wakes all who sleep on `word`.
void wake_sleepers(const FutexWord& word);

}  // namespace lockstep::allreduce
