// All-reduce of small buffers between ranks in log2(n) messages.
//
// In step k every rank exchanges all it has with the rank whose number differs in bit k, and adds: after log2(n) steps
// everyone has the sum over all. Where n is no power of two, the ranks above the largest one first hand their values to
// a rank below, and receive the result at the end. (Thakur, Rabenseifner and Gropp, "Optimization of collective
// communication operations in MPICH", 2005.)
//
// Both partners of an exchange add the lower rank's values first, so all ranks compute the same bits.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "lockstep/allreduce/reduction.h"
#include "lockstep/allreduce/transport/message_buffers.h"

namespace lockstep::allreduce {

/// One all-reduce under way, which advance() carries on.
class RecursiveDoubling {
 public:
  /// At most 2 GiB of values. `buffers`, which holds what MPI sends and receives, outlives this object and serves one
  /// reduction at a time.
  RecursiveDoubling(MPI_Comm comm, const Values& values, ReduceOp op, MessageBuffers& buffers);

  /// Does what can be done without waiting; true if there was anything.
  bool advance();
  bool is_done() const { return status_ != MPI_SUCCESS || stage_ == Stage::done; }
  /// The first error of MPI, if any.
  int status() const { return status_; }

 private:
  enum class Stage { hand_over, exchange, hand_back, done };

  bool is_extra() const { return rank_ >= core_; }
  int partner() const;
  void begin_stage();
  void end_stage();
  void next_stage();
  void send();
  void receive();
  void add_received();
  void keep(int status);

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  int core_ = 1;  // the largest power of two within size
  Values values_;
  ReduceOp op_;
  MessageBuffers& buffers_;
  Stage stage_ = Stage::hand_over;
  int distance_ = 1;
  int status_ = MPI_SUCCESS;
};

}  // namespace lockstep::allreduce
