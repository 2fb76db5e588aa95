// All-reduce between ranks as a ring: reduce-scatter, then all-gather, over non-blocking
// point-to-point messages.
//
// The buffer is split into one chunk per rank. In each of n - 1 steps every rank sends one chunk to
// its right neighbor and adds its own values to the chunk that it receives from the left. Then each
// rank has one complete chunk, and in n - 1 more steps the complete chunks circulate. Every rank
// sends and receives 2 (n - 1) / n of the buffer for any number n of ranks. Chunks are sent in
// segments, so that one segment is reduced while others are in flight. (Patarasuk and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.)
//
// Each element is completed by one rank, in an order that depends only on its position, so results
// are bitwise equal on all ranks and in every run. Small buffers, for which 2 (n - 1) messages cost
// too much, are sent with the calls that ranks compare (CallExchange).
#pragma once

#include <mpi.h>

#include <memory>

#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/allreduce/transport/mpi_group.h"

namespace lockstep::inline v0::allreduce {

/// Collective over `ranks`.
std::shared_ptr<MpiGroup> make_ring(MPI_Comm ranks, const RingOptions& options = {});

}  // namespace lockstep::inline v0::allreduce
