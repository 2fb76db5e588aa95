// A second stack of a thread: what runs on it can stop in the middle and go on later. The threads
// of a block of a pretended GPU are such.
#pragma once

#include <functional>
#include <memory>

namespace lockstep::pretend {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs `work` on this fiber until it ends or suspends itself. The fiber must be at rest.
  void start(std::function<void()> work);
  /// Goes on behind suspend(). Only the thread that started the fiber may.
  void resume();
  /// Inside its work: goes back to who started or resumed the fiber.
  void suspend();
  /// Whether its work has ended, or none was given yet.
  bool is_at_rest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::pretend
