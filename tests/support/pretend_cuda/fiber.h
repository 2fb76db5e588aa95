// A second stack of a thread, whose work can suspend and resume. The threads of a block on a
// simulated GPU are fibers.
#pragma once

#include <functional>
#include <memory>

namespace lockstep::inline v0::pretend {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs `work` on this fiber until it ends or suspends itself. The fiber must be at rest.
  void start(std::function<void()> work);
  /// Continues after suspend(). Must be called by the thread that started the fiber.
  void resume();
  /// Called in its work: returns to the caller of start() or resume().
  void suspend();
  /// Whether it has no work, or its work has ended.
  bool is_at_rest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::inline v0::pretend
