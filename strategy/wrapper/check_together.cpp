#include "strategy/wrapper/check_together.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "device/error.h"

namespace lockstep::strategy {

void check_together(Workers& workers, const std::function<void()>& check) {
  std::optional<Error> mine;
  try {
    check();
  } catch (const Error& error) {
    mine = error;
  }
  const std::string text = mine ? mine->what() : "";
  for (const auto& bytes : workers.group().all_gather(std::as_bytes(std::span(text)))) {
    if (mine) throw *mine;
    if (bytes.empty()) continue;
    throw Error(ErrorCategory::input, "distributed_optimizer", "needed the same options and parameters on all ranks",
                std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
}

}  // namespace lockstep::strategy
