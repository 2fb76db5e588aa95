#include "apps/lockstep/launch/runtime.h"

#include <mpi.h>

#include <array>
#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep::apps::launch {
namespace {

// Parameters that mpirun itself sends to its daemons. None of them names a program, a library or a file.
constexpr std::array<std::string_view, 12> kSetByOrte = {"btl_tcp_if_exclude",
                                                         "btl_tcp_if_include",
                                                         "hwloc_base_binding_policy",
                                                         "hwloc_base_use_hwthreads_as_cpus",
                                                         "oob_tcp_if_exclude",
                                                         "oob_tcp_if_include",
                                                         "pmix",
                                                         "rmaps_base_cpus_per_rank",
                                                         "rmaps_base_mapping_policy",
                                                         "rmaps_base_no_oversubscribe",
                                                         "rmaps_base_oversubscribe",
                                                         "rmaps_base_ranking_policy"};
constexpr std::array<std::string_view, 4> kSetByPrrte = {"oob_tcp_if_exclude", "oob_tcp_if_include", "prte_if_exclude",
                                                         "prte_if_include"};

}  // namespace

const Runtime kOrte = {.name = "ORTE (Open MPI 4)",
                       .daemon = "orted",
                       .option = "--mca",
                       .job = "ess_base_jobid",
                       .nodes = "orte_node_regex",
                       .uri = "orte_hnp_uri",
                       .launcher = "rsh",
                       .agent = "plm_rsh_agent",
                       .agent_options = "plm_rsh_args",
                       .no_tree = "plm_rsh_no_tree_spawn",
                       .full_names = "orte_keep_fqdn_hostnames",
                       .interfaces = "oob_tcp_if_include",
                       .may_be_set = kSetByOrte,
                       .is_prrte = false};

const Runtime kPrrte = {.name = "PRRTE (Open MPI 5)",
                        .daemon = "prted",
                        .option = "--prtemca",
                        .job = "ess_base_nspace",
                        .nodes = "",
                        .uri = "prte_hnp_uri",
                        .launcher = "ssh",
                        .agent = "plm_ssh_agent",
                        .agent_options = "",
                        .no_tree = "plm_ssh_no_tree_spawn",
                        .full_names = "prte_keep_fqdn_hostnames",
                        .interfaces = "prte_if_include",
                        .may_be_set = kSetByPrrte,
                        .is_prrte = true};

const Runtime& runtime_here() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return runtime_of({text.data(), static_cast<std::size_t>(length)});
}

const Runtime& runtime_of(std::string_view mpi) {
  constexpr std::string_view kOpenMpi = "Open MPI v";
  int version = 0;
  if (mpi.starts_with(kOpenMpi)) {
    const std::string_view number = mpi.substr(kOpenMpi.size());
    std::from_chars(number.data(), number.data() + number.size(), version);
  }
  if (version >= 5) return kPrrte;
  if (version == 4) return kOrte;
  throw Error(
      ErrorCategory::input, "launch", "expected Open MPI 4 or 5, because lockstep launch uses its mpirun",
      fmt::format("got {}; use the launcher of that MPI, such as mpiexec", mpi.substr(0, mpi.find_first_of(",\n"))));
}

}  // namespace lockstep::apps::launch
