#include "lockstep/allreduce/transport/job_texts.h"

#include <numeric>

#include "lockstep/allreduce/transport/mpi.h"

namespace lockstep::allreduce {
namespace {

constexpr char kBetweenParts = '\n';

std::string pack(const Failure& failure) {
  return failure.where + kBetweenParts + failure.needed + kBetweenParts + failure.given;
}

Failure unpack(const std::string& text) {
  const std::size_t first = text.find(kBetweenParts);
  const std::size_t second = text.find(kBetweenParts, first + 1);
  return {text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

}  // namespace

std::vector<std::string> gather_texts(MPI_Comm ranks, const std::string& mine) {
  if (ranks == MPI_COMM_NULL) return {mine};
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(size_of(ranks)));
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, ranks);
  std::vector<int> offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), ' ');
  MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR, ranks);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(lengths[rank])));
  return texts;
}

void raise_first(MPI_Comm ranks, const std::optional<Failure>& problem, ErrorCategory category) {
  for (const std::string& text : gather_texts(ranks, problem ? pack(*problem) : "")) {
    if (text.empty()) continue;
    const Failure first = unpack(text);
    throw Error(category, first.where, first.needed, first.given);
  }
}

}  // namespace lockstep::allreduce
