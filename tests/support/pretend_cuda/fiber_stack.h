// Memory for a fiber's stack, with a page below it that ends the program when it is reached.
#pragma once

#include <cstddef>

namespace lockstep::pretend {

class FiberStack {
 public:
  FiberStack();
  ~FiberStack();
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;

  std::byte* begin() const;
  std::size_t size() const;

 private:
  std::byte* mapped_;
};

}  // namespace lockstep::pretend
