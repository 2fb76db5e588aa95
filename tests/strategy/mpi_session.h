// The session of a test program that runs under mpirun: a process has one.
#pragma once

#include "strategy/session.h"

namespace lockstep::strategy {

Session& mpi_session();

}  // namespace lockstep::strategy
