// Each rank descends on its own samples: the sum of their gradients fits all samples.
#include <cstdio>
#include <vector>

#include <lockstep/core.h>

namespace {

struct Descent {
  std::vector<float> w{0}, dw{0};
  void step() { w[0] -= 0.25f * dw[0]; }
  std::vector<lockstep::Parameter> parameters() { return {{"w", w, dw}}; }
};

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [](lockstep::Session& session) {
    Descent descent;
    lockstep::DistributedOptimizer optimizer(session, descent);
    const auto samples = static_cast<float>(1 + session.rank());  // 1 of value 0, 2 of value 1 …
    for (int step = 0; step < 100; ++step) {
      descent.dw[0] = 2 * (descent.w[0] - static_cast<float>(session.rank()));
      optimizer.backward_done(samples);
      optimizer.step();
    }
    if (session.is_chief()) std::printf("w = %.3f, %d ranks\n", descent.w[0], session.size());
  });
}
