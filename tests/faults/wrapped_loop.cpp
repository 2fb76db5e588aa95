#include "tests/faults/wrapped_loop.h"

#include <fmt/format.h>

#include <cstdio>
#include <thread>
#include <vector>

namespace lockstep::faults {
namespace {

constexpr std::int64_t kSpokenLoopSteps = 20;

/// Two parameters, so that there are two buckets.
struct Optimizer {
  std::vector<float> values = std::vector<float>(64);
  std::vector<float> gradients = std::vector<float>(64, 1.0F);

  std::vector<Parameter> parameters() {
    const std::span<float> all_values(values);
    const std::span<float> all_gradients(gradients);
    return {{"front", all_values.first(32), all_gradients.first(32)},
            {"back", all_values.last(32), all_gradients.last(32)}};
  }
  void step() {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= 0.1F * gradients[i];
  }
};

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

int run(Session& session, const WrappedLoop& loop) {
  const Mischief mischief(loop.fault, session.rank(), 0);
  Workers workers(session, loop.workers);
  Optimizer inner;
  DistributedOptimizer optimizer(workers, inner, {.first_bucket_bytes = 1, .bucket_bytes = 1});
  optimizer.broadcast_parameters();
  for (std::int64_t step = 0; step < loop.steps; ++step) {
    std::this_thread::sleep_for(loop.pause);
    mischief.strike_before(step);
    if (mischief.is("returns", step)) return 0;
    optimizer.begin_backward();
    optimizer.gradient_ready(1);  // over a wire its reduction begins here
    mischief.strike_in_backward(step);
    optimizer.backward_done();
    optimizer.step();
    if (session.is_chief() && step < kSpokenLoopSteps) say(fmt::format("step {} done", step + 1));
  }
  if (session.is_chief()) say(fmt::format("trained {} steps", loop.steps));
  if (mischief.is("leaves-after-training")) std::_Exit(0);
  return 0;
}

}  // namespace lockstep::faults
