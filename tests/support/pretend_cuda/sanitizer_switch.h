// Notifies a sanitizer when a thread switches to the stack of a fiber and back. There is a source
// per sanitizer.
#pragma once

#include <cstddef>

namespace lockstep::inline v0::pretend {

class SanitizerSwitch {
 public:
  SanitizerSwitch(void* stack, std::size_t bytes);
  ~SanitizerSwitch();
  SanitizerSwitch(const SanitizerSwitch&) = delete;
  SanitizerSwitch& operator=(const SanitizerSwitch&) = delete;

  void will_enter();
  void has_entered();
  void will_leave();
  void has_left();

 private:
  void* stack_;
  std::size_t bytes_;
  const void* outside_ = nullptr;  // the stack or fiber that was left to enter this one
  std::size_t outside_bytes_ = 0;
  void* kept_outside_ = nullptr;
  void* kept_inside_ = nullptr;
};

}  // namespace lockstep::inline v0::pretend
