#include "tests/support/pretend_cuda/fiber_stack.h"

#include <sys/mman.h>

#include <cstdint>

#include "tests/support/pretend_cuda/machine.h"

namespace lockstep::inline v0::pretend {
namespace {

constexpr std::size_t kGuard = 4096;
constexpr std::size_t kBytes = 256UL * 1024;  // only touched pages use memory

// makecontext passes ints: a pointer is two.
std::uintptr_t joined(unsigned high, unsigned low) { return std::uintptr_t{high} << 32U | low; }

void begin_run(unsigned run_high, unsigned run_low, unsigned high, unsigned low) {
  // They were pointers before. NOLINTBEGIN(performance-no-int-to-ptr)
  const auto run = reinterpret_cast<void (*)(void*)>(joined(run_high, run_low));
  run(reinterpret_cast<void*>(joined(high, low)));
  // NOLINTEND(performance-no-int-to-ptr)
}

}  // namespace

FiberStack::FiberStack() {
  void* mapped = mmap(nullptr, kGuard + kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED || mprotect(mapped, kGuard, PROT_NONE) != 0)
    usage_error("no memory is left for a stack");
  mapped_ = static_cast<std::byte*>(mapped);
}

FiberStack::~FiberStack() { munmap(mapped_, kGuard + kBytes); }

std::byte* FiberStack::begin() const { return mapped_ + kGuard; }
std::size_t FiberStack::size() const { return kBytes; }

void FiberStack::prepare(ucontext_t& context, void (*run)(void*), void* argument) const {
  getcontext(&context);
  context.uc_stack.ss_sp = begin();
  context.uc_stack.ss_size = size();
  context.uc_link = nullptr;
  const auto function = reinterpret_cast<std::uintptr_t>(run);
  const auto data = reinterpret_cast<std::uintptr_t>(argument);
  makecontext(&context, reinterpret_cast<void (*)()>(begin_run), 4,
              static_cast<unsigned>(function >> 32U), static_cast<unsigned>(function),
              static_cast<unsigned>(data >> 32U), static_cast<unsigned>(data));
}

}  // namespace lockstep::inline v0::pretend
