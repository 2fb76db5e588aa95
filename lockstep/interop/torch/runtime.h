// LibTorch's state of a process, and its errors as ours.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::torch {

/// LibTorch's generator of the CPU with a seed, for the threads of this process one after another.
class SeededGenerator {
 public:
  /// Waits for other threads that have one, and seeds. The destructor restores the state.
  explicit SeededGenerator(std::uint64_t seed);
  ~SeededGenerator();
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

  void seed(std::uint64_t seed);  ///< seeds again
  bool was_used() const;          ///< whether numbers have been drawn since

 private:
  std::scoped_lock<std::mutex> lock_;
  at::Generator generator_;
  at::Tensor before_;
  at::Tensor seeded_;
};

/// Gives LibTorch's kernels as many threads as ours have in the calling thread, a replica's.
void share_thread_budget();

/// The line of `error` that says what is wrong, after "LibTorch: ": the first, or the last if the
/// interpreter of TorchScript says where it was.
std::string reason(const std::exception& error);

/// Calls `function`; what LibTorch throws becomes an Error of `where`.
template <typename Function>
auto rethrow_as_error(const std::string& where, const char* expected, ErrorCategory category,
          const Function& function) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(category, where, expected, reason(error));
  }
}

}  // namespace lockstep::torch
