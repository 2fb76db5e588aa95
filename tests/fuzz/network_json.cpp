#include "lockstep/model/network/network_json.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  using model::network_from_json;
  tolerate(ErrorCategory::input,
           [&] { network_from_json(text_of(bytes), "network.json").summary(); });
  const model::DataShape data{.input = model::Shape{8, 8, 3}, .classes = 10};
  tolerate(ErrorCategory::input,
           [&] { network_from_json(text_of(bytes), "network.json", data).summary(); });
}

}  // namespace lockstep::inline v0::fuzz
