// All-reduce of small buffers between ranks in log2(n) messages.
//
// In step k every rank exchanges its partial sums with the rank whose number differs in bit k, and
// adds them. After log2(n) steps every rank has the total. If n is not a power of two, the ranks
// above the largest power of two first send their values to a lower rank, and receive the result at
// the end. (Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", 2005.)
//
// Both partners of an exchange add the lower rank's values first, so results are bitwise equal on
// all ranks.
#pragma once

#include <mpi.h>

#include "lockstep/allreduce/reduction.h"
#include "lockstep/allreduce/transport/message_buffers.h"

namespace lockstep::allreduce {

/// One all-reduce in progress, driven by advance().
class RecursiveDoubling {
 public:
  /// At most 2 GiB of values. `buffers` holds the data that MPI sends and receives. It must outlive
  /// this object and is used by one reduction at a time.
  RecursiveDoubling(MPI_Comm comm, const Values& values, ReduceOp op, MessageBuffers& buffers);

  /// Makes progress without waiting; returns whether it made any.
  bool advance();
  bool is_done() const { return status_ != MPI_SUCCESS || stage_ == Stage::done; }
  /// The first MPI error, if any.
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
  int core_ = 1;  // the largest power of two that is not above size_
  Values values_;
  ReduceOp op_;
  MessageBuffers& buffers_;
  Stage stage_ = Stage::hand_over;
  int distance_ = 1;
  int status_ = MPI_SUCCESS;
};

}  // namespace lockstep::allreduce
