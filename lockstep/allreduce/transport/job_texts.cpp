#include "lockstep/allreduce/transport/job_texts.h"

#include <numeric>

#include "lockstep/allreduce/transport/mpi.h"

namespace lockstep::inline v0::allreduce {
std::vector<std::string> gather_texts(MPI_Comm ranks, const std::string& mine) {
  if (ranks == MPI_COMM_NULL) return {mine};
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(size_of(ranks));
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, ranks);
  std::vector<int> offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), ' ');
  MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(),
                 MPI_CHAR, ranks);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[rank]),
                               static_cast<std::size_t>(lengths[rank])));
  return texts;
}

void raise_first(MPI_Comm ranks, const std::optional<ErrorMessage>& problem,
                 ErrorCategory category) {
  for (const std::string& text : gather_texts(ranks, problem ? problem->pack() : "")) {
    if (text.empty()) continue;
    throw Error(category, ErrorMessage::unpack(text));
  }
}

}  // namespace lockstep::inline v0::allreduce
