// NCCL for the machine of pretend_gpu.h, between threads and between processes of one host: the
// program links pretend_nccl.cpp in the place of the library. It is strict where NCCL leaves wrong
// use undefined: it ends the program.
#pragma once

#include <nccl.h>

namespace lockstep::pretend {

/// The next collective of members `rank` answers `result` and does nothing.
void answer_next_call(int rank, ncclResult_t result);
/// From now on ncclCommGetAsyncError of members `rank` tells `result`.
void break_communicators(int rank, ncclResult_t result);
/// From now on collectives of members `rank` come to their end without meeting the others, who wait
/// for ever.
void lose_operations(int rank);
/// From now on ncclCommAbort of members `rank` does not return.
void hang_aborts(int rank);
/// From now on there is no library: a call throws as those of load_nccl.cpp do.
void lose_library();
/// All of the above never was.
void mend();

/// Calls of ncclCommAbort that have not returned.
int unfinished_aborts();

}  // namespace lockstep::pretend
