#include "tests/faults/wrapped_loop.h"

#include <fmt/format.h>

#include <cstdio>
#include <thread>
#include <vector>

namespace lockstep::inline v0::faults {
namespace {

constexpr std::int64_t kPrintedLoopSteps = 20;

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

void print_line(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

int run(Session& session, const WrappedLoop& loop) {
  const FaultInjector injector(loop.fault, session.rank(), 0);
  Workers workers(session, loop.workers);
  std::vector<int> reversed;
  for (int rank = workers.size() - 1; rank >= 0; --rank) reversed.push_back(rank);
  const auto group = loop.in_group ? workers.make_group(reversed) : nullptr;
  Optimizer inner;
  DistributedOptimizer optimizer(group ? *group : workers, inner,
                                 {.first_bucket_bytes = 1, .bucket_bytes = 1});
  optimizer.broadcast_parameters();
  for (std::int64_t step = 0; step < loop.steps; ++step) {
    std::this_thread::sleep_for(loop.pause);
    injector.inject_before_step(step);
    if (injector.is("returns", step)) return 0;
    optimizer.begin_backward();
    optimizer.gradient_ready(1);  // over a network its reduction begins here
    injector.inject_in_backward(step);
    optimizer.backward_done();
    optimizer.step();
    if (session.is_chief() && step < kPrintedLoopSteps)
      print_line(fmt::format("step {} done", step + 1));
  }
  if (session.is_chief()) print_line(fmt::format("trained {} steps", loop.steps));
  if (injector.is("leaves-after-training")) std::_Exit(0);
  return 0;
}

}  // namespace lockstep::inline v0::faults
