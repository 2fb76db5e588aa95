#include "allreduce/watch/rendezvous.h"

#include <utility>

#include "device/error.h"

namespace lockstep::allreduce {
namespace {

std::string broadcast(MPI_Comm ranks, std::string text, int root) {
  auto size = static_cast<int>(text.size());
  MPI_Bcast(&size, 1, MPI_INT, root, ranks);
  text.resize(static_cast<std::size_t>(size));
  MPI_Bcast(text.data(), size, MPI_CHAR, root, ranks);
  return text;
}

}  // namespace

std::string share_of_rank_zero(MPI_Comm ranks, std::string text) { return broadcast(ranks, std::move(text), 0); }

void throw_first_error(MPI_Comm ranks, const std::string& message) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm_size(ranks, &size);
  int first = message.empty() ? size : rank;
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, ranks);
  if (first == size) return;
  // Taken apart along the grammar of Error, which puts it together again.
  const std::string whole = broadcast(ranks, message, first);
  const std::size_t begin = whole.find("] ") + 2;
  const std::size_t middle = whole.find("; ");
  throw Error(ErrorCategory::communication, "watchdog", whole.substr(begin, middle - begin), whole.substr(middle + 2));
}

}  // namespace lockstep::allreduce
