#include "data/pipeline/worker_tuner.h"

#include <algorithm>

namespace lockstep::data {

int WorkerTuner::add_step(double waited, double elapsed, bool all_ready) {
  idle_steps_ = all_ready ? idle_steps_ + 1 : 0;
  if (idle_steps_ >= patience_) {
    idle_steps_ = 0;
    has_shrunk_ = has_shrunk_ || workers_ > 1;
    workers_ = std::max(1, workers_ - 1);
  }
  waited_ += waited;
  elapsed_ += elapsed;
  if (++window_steps_ < kWindowSteps) return workers_;
  if (waited_ > kWaitShare * elapsed_) {
    if (has_shrunk_) patience_ = std::min(2 * patience_, kMostIdleSteps);
    has_shrunk_ = false;
    workers_ = std::min(most_, workers_ + 1);
  }
  window_steps_ = 0;
  waited_ = 0;
  elapsed_ = 0;
  return workers_;
}

}  // namespace lockstep::data
