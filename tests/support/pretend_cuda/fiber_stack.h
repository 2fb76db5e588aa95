// Memory for a fiber's stack, with a guard page below it.
#pragma once

#include <ucontext.h>

#include <cstddef>

namespace lockstep::inline v0::pretend {

class FiberStack {
 public:
  FiberStack();
  ~FiberStack();
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;

  std::byte* begin() const;
  std::size_t size() const;

  /// Sets `context` to the beginning of `run(argument)` on this stack; `run` never returns.
  void prepare(ucontext_t& context, void (*run)(void*), void* argument) const;

 private:
  std::byte* mapped_;
};

}  // namespace lockstep::inline v0::pretend
