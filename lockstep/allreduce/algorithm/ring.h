// All-reduce between ranks as a ring: reduce-scatter, then all-gather, over non-blocking point-to-point messages.
//
// The buffer is cut into one chunk a rank. In each of n - 1 steps every rank passes one chunk to its right neighbour
// and adds its own values to the one that comes from the left; then each rank has one chunk complete, and in n - 1 more
// steps the complete chunks go round. Every rank sends and receives 2 (n - 1) / n of the buffer, whatever the number of
// ranks. Chunks travel in segments, so that one segment is reduced while others are on their way. (Patarasuk and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.)
//
// Each element is completed by one rank, in an order that depends on its place alone: the same bits on all ranks, in
// every run. What is too small to be worth 2 (n - 1) messages goes by recursive doubling.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

#include "lockstep/allreduce/transport/mpi_group.h"

namespace lockstep::allreduce {

struct RingOptions {
  std::size_t doubling_bytes = std::size_t{16} << 10;  ///< what is not larger goes by recursive doubling
  std::size_t segment_bytes = std::size_t{256} << 10;  ///< a multiple of 64
};

/// Collective over `ranks`.
std::shared_ptr<MpiGroup> make_ring(MPI_Comm ranks, const RingOptions& options = {});

}  // namespace lockstep::allreduce
