# lockstep.pc. `pkg-config --libs lockstep` links the shared library, with `--static` also what the
# static ones link. Those who use the shared library need the development files of what our headers
# include alone, so the rest are plain libraries of the linker.
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(pc_cuda "")
if(cuda_found)
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  set(pc_cuda "${cudart} -lrt")
endif()
list(TRANSFORM MPI_CXX_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE pc_mpi_includes)
list(JOIN pc_mpi_includes " " pc_mpi_includes)
# Of MPI's C++ bindings nothing is used.
list(FILTER MPI_CXX_LIBRARIES EXCLUDE REGEX "libmpi_cxx")
list(JOIN MPI_CXX_LIBRARIES " " pc_mpi_libraries)
configure_file(third_party/lockstep.pc.in ${PROJECT_BINARY_DIR}/lockstep.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)

# One name for the static libraries, by which `-llockstep` finds them where no shared library is
# asked for: a script of the linker.
set(pc_modules ${modules})
list(TRANSFORM pc_modules PREPEND -l)
list(JOIN pc_modules " " pc_modules)
file(WRITE ${PROJECT_BINARY_DIR}/liblockstep.a
  "/* The static libraries of Lockstep, as one. */\nGROUP ( ${pc_modules} )\n")
install(FILES ${PROJECT_BINARY_DIR}/liblockstep.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT
  development)
