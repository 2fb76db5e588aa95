#include "tests/support/pretend_cuda/fiber_stack.h"

#include <sys/mman.h>

#include "tests/support/pretend_cuda/machine.h"

namespace lockstep::pretend {
namespace {

constexpr std::size_t kGuard = 4096;
constexpr std::size_t kBytes = 256UL * 1024;  // the system provides what is touched alone

}  // namespace

FiberStack::FiberStack() {
  void* mapped = mmap(nullptr, kGuard + kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED || mprotect(mapped, kGuard, PROT_NONE) != 0) misused("no memory is left for a stack");
  mapped_ = static_cast<std::byte*>(mapped);
}

FiberStack::~FiberStack() { munmap(mapped_, kGuard + kBytes); }

std::byte* FiberStack::begin() const { return mapped_ + kGuard; }
std::size_t FiberStack::size() const { return kBytes; }

}  // namespace lockstep::pretend
