#include <sanitizer/tsan_interface.h>

#include "tests/support/pretend_cuda/sanitizer_switch.h"

namespace lockstep::inline v0::pretend {

SanitizerSwitch::SanitizerSwitch(void* stack, std::size_t bytes)
    : stack_(stack), bytes_(bytes), kept_inside_(__tsan_create_fiber(0)) {}

SanitizerSwitch::~SanitizerSwitch() { __tsan_destroy_fiber(kept_inside_); }

void SanitizerSwitch::will_enter() {
  kept_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(kept_inside_, 0);
}

void SanitizerSwitch::has_entered() {}
void SanitizerSwitch::will_leave() { __tsan_switch_to_fiber(kept_outside_, 0); }
void SanitizerSwitch::has_left() {}

}  // namespace lockstep::inline v0::pretend
