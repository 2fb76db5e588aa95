#include "strategy/checkpoint.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

void read_untrusted(Bytes bytes) {
  tolerate(ErrorCategory::checkpoint, [&] {
    const strategy::TrainingState state = strategy::parse_training_state(std::string(text_of(bytes)), "state.json");
    // What was read must come through our own writer.
    strategy::parse_training_state(strategy::to_json_text(state), "state.json");
  });
}

}  // namespace lockstep::fuzz
