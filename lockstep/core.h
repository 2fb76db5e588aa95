/* The header of Lockstep's core, for programs with a training loop of their own: the wrapper of
 * optimizers, collectives, the job. In C++, it imports the most common names into the namespace
 * `lockstep`. In C, it includes interop/c_api.h. */
#pragma once

#ifndef __cplusplus
#include "lockstep/interop/c_api.h"
#elif __cplusplus < 202002L
#error "Lockstep requires C++20: compile with -std=c++20, or set CMAKE_CXX_STANDARD to 20"
#else

#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/device/device.h"
#include "lockstep/interop/distributed_optimizer.h"
#include "lockstep/interop/equivalence.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/job/run.h"
#include "lockstep/job/session.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0 {

using interop::DistributedOptimizer;
using interop::DistributedOptions;
using interop::EquivalenceOptions;
using interop::EquivalenceResult;
using interop::Parameter;
using interop::Reduction;
using interop::verify_equivalence;
using job::run;
using job::Session;
using job::SessionOptions;
using job::Workers;
using job::WorkersOptions;

}  // namespace lockstep::inline v0

#endif
