// The cores of this process and how replicas share them.
#pragma once

#include <string>

namespace lockstep::device {

/// Cores that this process may run on (its affinity mask, as mpirun or a container set it); at least 1.
int available_cores();

/// Which processors those are, as Linux writes such lists: "0-3,8"; empty where the system does not tell.
std::string processor_list();

/// How many threads the kernels that the calling thread runs may use. Thread-local: each replica thread sets its own.
void set_thread_budget(int threads);

/// Resident memory of this process now, in bytes; 0 where the system does not tell.
std::size_t resident_bytes();

/// The processor's name for people, such as "AMD EPYC".
std::string cpu_name();

/// The name of this host.
std::string host_name();

}  // namespace lockstep::device
