// Loads an MPI library at run time: Lockstep is linked to none, so that it starts without one, and
// runs under the launchers of several.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/allreduce/transport/mpi/mpi_functions.h"

namespace lockstep::inline v0::allreduce {

/// Kinds of MPI libraries with one binary interface each: Open MPI 4 and 5, and MPICH with its
/// relatives, such as Intel MPI.
enum class MpiKind : std::uint8_t { open_mpi, mpich };

/// Whether the program itself has initialized an MPI library. Loads nothing.
bool program_has_mpi();

/// The MPI library of this process. The first call loads it: one that the process has already, or
/// the first of `kinds` that is installed, and the adapter for it. Throws Error (communication)
/// that names what is missing.
const MpiFunctions& load_mpi(std::span<const MpiKind> kinds);
/// The library that the process has already.
const MpiFunctions& loaded_mpi();

/// The libraries whose adapters were built: "Open MPI 4.1.4, MPICH 4.0.2", or "none".
std::string mpi_built_versions();
/// What the library says of itself, such as "Open MPI v4.1.4"; "absent" if load_mpi(kinds) throws.
std::string mpi_loaded_version(std::span<const MpiKind> kinds);

}  // namespace lockstep::inline v0::allreduce
