# Starts ranks in tests: the machine may have fewer cores than ranks, and the tests may run as root
# in a container.
if(MPI_CXX_LIBRARY_VERSION_STRING MATCHES "^Open MPI")
  # Open MPI 5 warns that it cannot pair the addresses of a host with IPv6 and IPv4.
  set(lockstep_mpirun ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root --bind-to none --mca
    mpi_yield_when_idle 1
                      --mca btl_tcp_disable_family 6)
else()
  set(lockstep_mpirun ${MPIEXEC_EXECUTABLE} -bind-to none)
endif()
# The same as environment variables of Open MPI 4 (OMPI_MCA) and 5 (PRTE_MCA), for tests that call a
# plain mpirun.
set(lockstep_mpi_environment
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none)

# lockstep_starts_ranks(TARGET): its sources may include tests/support/mpirun.h.
function(lockstep_starts_ranks TARGET)
  list(JOIN lockstep_mpirun " " command)
  target_compile_definitions(${TARGET} PRIVATE LOCKSTEP_MPIRUN="${command}")
endfunction()

# lockstep_mpi_test(NAME RANKS TARGET [ARGS...]): runs the program TARGET under mpirun on RANKS
# ranks, with label mpi.
function(lockstep_mpi_test NAME RANKS TARGET)
  add_test(NAME ${NAME} COMMAND ${lockstep_mpirun} ${MPIEXEC_NUMPROC_FLAG} ${RANKS}
    $<TARGET_FILE:${TARGET}> ${ARGN})
  set_tests_properties(${NAME} PROPERTIES LABELS mpi TIMEOUT 120 PROCESSORS ${RANKS} ENVIRONMENT
    "OMP_NUM_THREADS=1;GTEST_BRIEF=1")
endfunction()

# lockstep_mpi_tests(TARGET RANKS N… [MORE_RANKS N…]): the same for each number of ranks, in tests
# named TARGET_N. Two and three ranks cover everything except nodes of two ranks each; MORE_RANKS
# have the label more_ranks, and run with scripts/test --all.
function(lockstep_mpi_tests TARGET)
  cmake_parse_arguments(TEST "" "" "RANKS;MORE_RANKS" ${ARGN})
  foreach(ranks ${TEST_RANKS} ${TEST_MORE_RANKS})
    lockstep_mpi_test(${TARGET}_${ranks} ${ranks} ${TARGET})
  endforeach()
  foreach(ranks ${TEST_MORE_RANKS})
    set_tests_properties(${TARGET}_${ranks} PROPERTIES LABELS "mpi;more_ranks")
  endforeach()
endfunction()
