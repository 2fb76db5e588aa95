// LibTorch's process-wide state, and conversion of its errors.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::torch {

/// Exclusive use of LibTorch's CPU generator, with a seed.
class SeededGenerator {
 public:
  /// Waits until no other thread uses the generator, then seeds it. The destructor restores its
  /// state.
  explicit SeededGenerator(std::uint64_t seed);
  ~SeededGenerator();
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

  void seed(std::uint64_t seed);  ///< seeds again
  bool was_used() const;          ///< whether numbers were drawn since the last seed

 private:
  std::scoped_lock<std::mutex> lock_;
  at::Generator generator_;
  at::Tensor before_;
  at::Tensor seeded_;
};

/// Applies the thread budget of the calling replica thread to LibTorch's kernels.
void share_thread_budget();

/// "LibTorch: " and the relevant line of `error`: the first, or the last after a TorchScript stack
/// trace.
std::string reason(const std::exception& error);

/// Calls `function`. Converts exceptions of LibTorch to an Error with `where`.
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

}  // namespace lockstep::inline v0::torch
