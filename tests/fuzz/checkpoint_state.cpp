#include "lockstep/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  tolerate(ErrorCategory::checkpoint, [&] {
    const checkpoint::TrainingState state =
        checkpoint::parse_training_state(std::string(text_of(bytes)), "state.json");
    // Our own writer must accept any state that was read.
    checkpoint::parse_training_state(checkpoint::to_json_text(state), "state.json");
  });
}

}  // namespace lockstep::inline v0::fuzz
