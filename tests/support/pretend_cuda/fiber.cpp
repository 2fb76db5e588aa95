// setjmp and longjmp switch without the system call of swapcontext, which only enters a new stack.
// The longjmp checks of fortified builds reject jumps between stacks.
#undef _FORTIFY_SOURCE
#include "tests/support/pretend_cuda/fiber.h"

#include <csetjmp>
#include <utility>

#include "tests/support/pretend_cuda/fiber_stack.h"

namespace lockstep::inline v0::pretend {

struct Fiber::State {
  FiberStack stack;
  ucontext_t entry{};
  ucontext_t starter{};
  jmp_buf outside;
  jmp_buf inside;
  std::function<void()> work;
  bool has_begun = false;
  bool rests = true;

  void enter() {
    if (_setjmp(outside) != 0) return;
    if (has_begun) _longjmp(inside, 1);
    has_begun = true;
    swapcontext(&starter, &entry);
  }

  void leave() {
    if (_setjmp(inside) == 0) _longjmp(outside, 1);
  }

  static void run(void* data) {
    auto* state = static_cast<State*>(data);
    for (;;) {
      state->work();
      state->rests = true;
      state->leave();
    }
  }
};

Fiber::Fiber() : state_(std::make_unique<State>()) {
  state_->stack.prepare(state_->entry, State::run, state_.get());
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
