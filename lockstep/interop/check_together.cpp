#include "lockstep/interop/check_together.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::interop {

void check_together(job::Workers& workers, std::string_view where, const std::function<std::string()>& check) {
  std::optional<Error> mine;
  std::string text = "=";  // before what was returned; "!" before an error
  try {
    text += check();
  } catch (const Error& error) {
    mine = error;
    text = std::string("!") + error.what();
  }
  std::vector<std::string> texts;
  for (const auto& bytes : workers.group().all_gather(std::as_bytes(std::span(text))))
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (mine) throw *mine;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].front() == '!')
      throw Error(ErrorCategory::input, where, "needed what all ranks can use",
                  fmt::format("rank {}: {}", rank, texts[rank].substr(1)));
    if (texts[rank] != texts.front())
      throw Error(
          ErrorCategory::input, where, "needed the same options on all ranks",
          fmt::format("rank 0 has {} and rank {} has {}", texts.front().substr(1), rank, texts[rank].substr(1)));
  }
}

}  // namespace lockstep::interop
