// Code that waits, run a part at a time: it goes on until it pauses. All fibres of a thread take
// turns.
#pragma once

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <functional>
#include <utility>

namespace lockstep::inline v0::simulator {

class Fibre {
 public:
  /// `code` throws nothing, and has returned when the fibre is destroyed.
  explicit Fibre(std::function<void()> code)
      : code_(std::move(code)),
        stack_(::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    ::getcontext(&inside_);
    inside_.uc_stack.ss_sp = stack_;
    inside_.uc_stack.ss_size = kStackBytes;
    inside_.uc_link = &outside_;
    ::makecontext(
        &inside_, [] { running->code_(), running->is_over_ = true; }, 0);
  }
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;
  ~Fibre() { ::munmap(stack_, kStackBytes); }

  bool is_over() const { return is_over_; }
  /// Runs the code until it pauses or returns.
  void go_on() {
    running = this;
    exchange_exceptions();
    ::swapcontext(&outside_, &inside_);
    exchange_exceptions();
    running = nullptr;
  }
  /// Called by the code; does nothing outside of a fibre.
  static void pause() {
    if (running != nullptr) ::swapcontext(&running->inside_, &running->outside_);
  }

 private:
  static constexpr std::size_t kStackBytes = 256 << 10;
  static inline Fibre* running = nullptr;

  /// Which exceptions are being handled is known for each thread.
  void exchange_exceptions() {
    std::swap(*reinterpret_cast<std::array<void*, 2>*>(abi::__cxa_get_globals()), exceptions_);
  }

  std::function<void()> code_;
  void* stack_;
  bool is_over_ = false;
  ucontext_t inside_ = {};
  ucontext_t outside_ = {};
  std::array<void*, 2> exceptions_ = {};
};

}  // namespace lockstep::inline v0::simulator
