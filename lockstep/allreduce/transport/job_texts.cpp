#include "lockstep/allreduce/transport/job_texts.h"

namespace lockstep::inline v0::allreduce {

std::vector<std::string> gather_texts(const Communicator& ranks, const std::string& mine) {
  std::vector<std::string> texts;
  for (const std::vector<std::byte>& bytes : ranks.all_gather(std::as_bytes(std::span(mine))))
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return texts;
}

void raise_first(const Communicator& ranks, const std::optional<ErrorMessage>& problem,
                 ErrorCategory category) {
  for (const std::string& text : gather_texts(ranks, problem ? problem->pack() : "")) {
    if (text.empty()) continue;
    throw Error(category, ErrorMessage::unpack(text));
  }
}

}  // namespace lockstep::inline v0::allreduce
