// Whether all ranks run the same program on the same libraries.
#pragma once

#include <map>
#include <string>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// By name: "lockstep", "mpi built", "mpi loaded", "processor", …; what `lockstep version` tells.
using VersionFacts = std::map<std::string, std::string>;

VersionFacts measure_versions();

/// Whether all ranks that answered are of one version of Lockstep: others may understand each other no further.
bool is_one_program(const Reports<VersionFacts>& reports);

/// Versions that differ between ranks, and libraries that are not what this program was compiled for.
Outcome judge_versions(const Reports<VersionFacts>& reports);

}  // namespace lockstep::apps::doctor
