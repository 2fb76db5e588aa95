#include "tests/support/pretend_nodes.h"

#include <mpi.h>

#include <cstdlib>

namespace {

bool ranks_are_nodes = std::getenv("TEST_RANKS_ARE_NODES") != nullptr;

}  // namespace

namespace lockstep::inline v0::pretend {

RanksAreNodes::RanksAreNodes() { ranks_are_nodes = true; }
RanksAreNodes::~RanksAreNodes() { ranks_are_nodes = false; }

}  // namespace lockstep::inline v0::pretend

// Overrides MPI's function through the MPI profiling interface.
extern "C" int MPI_Comm_split_type(MPI_Comm ranks, int type, int key, MPI_Info info,
                                   MPI_Comm* part) {
  if (!ranks_are_nodes) return PMPI_Comm_split_type(ranks, type, key, info, part);
  int rank = 0;
  PMPI_Comm_rank(ranks, &rank);
  return PMPI_Comm_split(ranks, rank, key, part);
}
