#include "lockstep/onnx/import.h"
#include "lockstep/onnx/read_model.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  tolerate(ErrorCategory::input, [&] {
    onnx::import_network(onnx::read_model(text_of(bytes)), "model.onnx").network.summary();
  });
}

}  // namespace lockstep::inline v0::fuzz
