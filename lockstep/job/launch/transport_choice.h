// The choice of what carries the messages between ranks.
#pragma once

#include <cstdint>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/fields/fields.h"

namespace lockstep::inline v0::job {

/// `automatic` is MPI if mpirun or another launcher that connects ranks by MPI started the process,
/// or the program has initialized MPI; tcp if the environment makes it one of several ranks.
enum class TransportChoice : std::uint8_t { automatic, mpi, tcp };

}  // namespace lockstep::inline v0::job

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<job::TransportChoice> =
    enum_names<job::TransportChoice>({{job::TransportChoice::automatic, "auto"},
                                      {job::TransportChoice::mpi, "mpi"},
                                      {job::TransportChoice::tcp, "tcp"}});

}  // namespace lockstep::inline v0
