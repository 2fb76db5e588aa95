// Initialization at the start of main().
#pragma once

namespace lockstep::apps {

/// Restores the SIGHUP action that this process inherited, such as SIG_IGN under nohup. Libraries install a handler
/// before main() runs (UCX, which Debian 13's Open MPI loads, for its debugger). Must be called first in main().
void restore_inherited_hangup();

/// Makes idle OpenMP threads spin for microseconds before they sleep. The default of GNU OpenMP is milliseconds, and on
/// a busy machine a spinning thread occupies the core that another thread needs. The OpenMP library reads its settings
/// before main(), so this function sets them and executes the program again. Does nothing if the user has set
/// GOMP_SPINCOUNT or OMP_WAIT_POLICY. Must be called first in main().
void let_kernel_threads_sleep(char** argv);

}  // namespace lockstep::apps
