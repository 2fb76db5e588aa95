// What Lockstep calls in an MPI library, without the types of its mpi.h, which differ between
// libraries. Only an adapter (mpi_adapter.cpp) is compiled with them: one shared object for each
// kind of MPI, loaded at run time (mpi_loader.h).
#pragma once

#include <cstdint>

#include "lockstep/allreduce/member/reduction.h"

namespace lockstep::inline v0::allreduce {

/// A communicator, request, data type or operation of MPI, as its bytes; 0: none.
using MpiHandle = std::uint64_t;

/// Reduces `count` elements of `from` into `into`.
using MpiReduction = void(void* from, void* into, int* count, void* type);

/// What a completed receive, or a probe, found.
struct MpiArrival {
  int from = 0;
  int bytes = 0;
};

/// The functions of an adapter. Those that return an int return MPI's status, of which 0 is
/// success, unless their comment says otherwise. They have no exceptions.
struct MpiFunctions {
  std::uint32_t layout;  ///< kMpiLayout

  /// Writes the library's own description, at most `size` characters with the final 0.
  void (*describe)(char* text, int size);
  void (*describe_status)(int status, char* text, int size);

  bool (*is_initialized)();
  bool (*is_finalized)();
  int (*initialize)(int* argc, char*** argv);
  bool (*allows_turns)();  ///< whether several threads may call MPI, one at a time
  void (*finalize)();
  void (*abort)(MpiHandle communicator, int exit_status);

  MpiHandle (*world)();
  MpiHandle (*from_fortran)(int communicator);
  int (*to_fortran)(MpiHandle communicator);  ///< returns the integer
  bool (*is_between_groups)(MpiHandle communicator);
  int (*rank)(MpiHandle communicator);  ///< returns the rank
  int (*size)(MpiHandle communicator);  ///< returns the number of ranks
  int (*duplicate)(MpiHandle communicator, MpiHandle* copy);
  int (*split_by_node)(MpiHandle communicator, MpiHandle* node);
  /// `members` are ranks of `communicator`, which call it with the same `tag`.
  int (*create_subset)(MpiHandle communicator, const int* members, int count, int tag,
                       MpiHandle* subset);
  void (*return_errors)(MpiHandle communicator);  ///< instead of ending the job
  void (*free_communicator)(MpiHandle communicator);

  int (*send)(MpiHandle communicator, int to, int tag, const void* data, int bytes,
              MpiHandle* request);
  int (*receive)(MpiHandle communicator, int from, int tag, void* data, int bytes,
                 MpiHandle* request);
  /// Clears `request` if it is complete or has failed.
  int (*test)(MpiHandle* request, MpiArrival* arrival);
  int (*probe)(MpiHandle communicator, int tag, bool* has_arrived, MpiArrival* arrival);

  int (*broadcast)(MpiHandle communicator, void* data, int count, MpiHandle type, int root);
  int (*all_gather)(MpiHandle communicator, int mine, int* all);
  /// In place.
  int (*all_reduce)(MpiHandle communicator, void* data, int count, MpiHandle type,
                    MpiHandle operation);
  MpiHandle (*type)(ElementType type);  ///< 0 for types that MPI does not have
  MpiHandle (*operation)(ReduceOp op);
  MpiHandle (*create_type)(int bytes);  ///< a type of which MPI knows the size only
  MpiHandle (*create_operation)(MpiReduction* reduction);
  void (*free_type)(MpiHandle type);
  void (*free_operation)(MpiHandle operation);
};

/// Changes whenever MpiFunctions does: an adapter of another version is refused.
inline constexpr std::uint32_t kMpiLayout = 1;

/// The only symbol of an adapter, of the type MpiAdapter.
inline constexpr const char* kMpiAdapterName = "lockstep_mpi_adapter";
using MpiAdapter = const MpiFunctions*();

}  // namespace lockstep::inline v0::allreduce
