// The session of a test program that runs under mpirun: a process has one.
#pragma once

#include "lockstep/job/session.h"

namespace lockstep::inline v0::job {

Session& mpi_session();

}  // namespace lockstep::inline v0::job
