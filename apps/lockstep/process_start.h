// What the program does before anything else.
#pragma once

namespace lockstep::apps {

/// Gives SIGHUP the action back that this process was started with: under nohup, none. Libraries take the signal before
/// main runs (UCX, which the Open MPI of Debian 13 loads, for its debugger). First thing in main.
void restore_inherited_hangup();

/// Makes idle kernel threads spin for microseconds before they sleep, not for milliseconds as GNU OpenMP does by
/// default: on a machine that does anything else a spinning thread holds the core that its partner needs. The OpenMP
/// library reads its settings before main, so the program starts itself anew with them. Does nothing where the user has
/// set GOMP_SPINCOUNT or OMP_WAIT_POLICY. To be called first in main.
void let_kernel_threads_sleep(char** argv);

}  // namespace lockstep::apps
