// fiber.cpp for sanitizers: it notifies them of each switch, and avoids longjmp to another stack,
// which they do not support.
#include "tests/support/pretend_cuda/fiber.h"

#include <utility>

#include "tests/support/pretend_cuda/fiber_stack.h"
#include "tests/support/pretend_cuda/sanitizer_switch.h"

namespace lockstep::inline v0::pretend {

struct Fiber::State {
  FiberStack stack;
  SanitizerSwitch tell{stack.begin(), stack.size()};
  ucontext_t outside{};
  ucontext_t inside{};
  std::function<void()> work;
  bool rests = true;

  void enter() {
    tell.will_enter();
    swapcontext(&outside, &inside);
    tell.has_left();
  }

  void leave() {
    tell.will_leave();
    swapcontext(&inside, &outside);
    tell.has_entered();
  }

  static void run(void* data) {
    auto* state = static_cast<State*>(data);
    state->tell.has_entered();
    for (;;) {
      state->work();
      state->rests = true;
      state->leave();
    }
  }
};

Fiber::Fiber() : state_(std::make_unique<State>()) {
  state_->stack.prepare(state_->inside, State::run, state_.get());
}

Fiber::~Fiber() = default;

void Fiber::start(std::function<void()> work) {
  state_->work = std::move(work);
  state_->rests = false;
  state_->enter();
}

void Fiber::resume() { state_->enter(); }
void Fiber::suspend() { state_->leave(); }
bool Fiber::is_at_rest() const { return state_->rests; }

}  // namespace lockstep::inline v0::pretend
