// How the threads of a replica's kernels wait for each other.
#pragma once

namespace lockstep::apps {

/// Makes idle kernel threads spin for microseconds before they sleep, not for milliseconds as GNU OpenMP does by
/// default: on a machine that does anything else a spinning thread holds the core that its partner needs. The OpenMP
/// library reads its settings before main, so the program starts itself anew with them. Does nothing where the user has
/// set GOMP_SPINCOUNT or OMP_WAIT_POLICY. To be called first in main.
void let_kernel_threads_sleep(char** argv);

}  // namespace lockstep::apps
