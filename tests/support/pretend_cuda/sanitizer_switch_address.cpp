#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include "tests/support/pretend_cuda/sanitizer_switch.h"

namespace lockstep::inline v0::pretend {

SanitizerSwitch::SanitizerSwitch(void* stack, std::size_t bytes) : stack_(stack), bytes_(bytes) {}

// The memory is no longer a stack.
SanitizerSwitch::~SanitizerSwitch() { __asan_unpoison_memory_region(stack_, bytes_); }

void SanitizerSwitch::will_enter() {
  __sanitizer_start_switch_fiber(&kept_outside_, stack_, bytes_);
}
void SanitizerSwitch::has_entered() {
  __sanitizer_finish_switch_fiber(kept_inside_, &outside_, &outside_bytes_);
}
void SanitizerSwitch::will_leave() {
  __sanitizer_start_switch_fiber(&kept_inside_, outside_, outside_bytes_);
}
void SanitizerSwitch::has_left() {
  __sanitizer_finish_switch_fiber(kept_outside_, nullptr, nullptr);
}

}  // namespace lockstep::inline v0::pretend
