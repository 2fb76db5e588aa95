// NCCL for the simulated machine of pretend_gpu.h, between threads and between processes of one
// host. Programs link pretend_nccl.cpp instead of the library. Misuse that is undefined in NCCL
// ends the program.
#pragma once

#include <nccl.h>

namespace lockstep::inline v0::pretend {

/// The next collective of members `rank` returns `result` and does nothing.
void answer_next_call(int rank, ncclResult_t result);
/// ncclCommGetAsyncError of members `rank` returns `result` from now on.
void break_communicators(int rank, ncclResult_t result);
/// Collectives of members `rank` complete without the others from now on; the others hang.
void lose_operations(int rank);
/// ncclCommAbort of members `rank` hangs from now on.
void hang_aborts(int rank);
/// There is no library from now on: calls throw as in load_nccl.cpp.
void lose_library();
/// Resets all of the above.
void reset_faults();

/// Number of calls of ncclCommAbort that have not returned.
int unfinished_aborts();

}  // namespace lockstep::inline v0::pretend
