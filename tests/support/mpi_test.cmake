# lockstep_mpi_test(NAME RANKS TARGET [ARGS...]): runs the program TARGET under mpirun on RANKS ranks, with label mpi. The machine
# may have fewer cores than ranks, and the tests may run as root in a container.
function(lockstep_mpi_test NAME RANKS TARGET)
  add_test(NAME ${NAME}
    COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${RANKS} --bind-to none $<TARGET_FILE:${TARGET}> ${ARGN})
  set_tests_properties(${NAME} PROPERTIES LABELS mpi TIMEOUT 120 PROCESSORS ${RANKS} ENVIRONMENT
    "OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_mpi_yield_when_idle=1;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMP_NUM_THREADS=1")
endfunction()
