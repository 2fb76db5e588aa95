# Adapters to MPI libraries, which are loaded at run time: one shared object for each kind of MPI
# whose mpi.h is found, compiled with that header and linked to no MPI. The common kinds can be
# installed side by side: find_package(MPI) finds one, pkg-config the others.
set(mpi_adapters "")        # targets
set(mpi_adapters_text "")   # "Open MPI 4.1.4, MPICH 4.0.2"

# lockstep_mpi_adapter(KIND NAME MODULE): the adapter liblockstep_mpi_KIND.so for NAME, the library
# that find_package(MPI) describes by this name, or the module MODULE of pkg-config.
macro(lockstep_mpi_adapter KIND NAME MODULE)
  set(found_version "")
  if(MPI_CXX_FOUND AND MPI_CXX_LIBRARY_VERSION_STRING MATCHES "^${NAME}[^0-9]*([0-9.]+)")
    set(found_version ${CMAKE_MATCH_1})
    set(found_includes ${MPI_CXX_INCLUDE_DIRS})
  elseif(PKG_CONFIG_FOUND)
    pkg_check_modules(MPI_${KIND} QUIET ${MODULE})
    if(MPI_${KIND}_FOUND)
      set(found_version ${MPI_${KIND}_VERSION})
      set(found_includes ${MPI_${KIND}_INCLUDE_DIRS})
    endif()
  endif()
  if(found_version)
    set(adapter lockstep_mpi_${KIND})
    add_library(${adapter} MODULE lockstep/allreduce/transport/mpi/mpi_adapter.cpp)
    target_link_libraries(${adapter} PRIVATE $<BUILD_INTERFACE:lockstep_options> fmt::fmt)
    target_include_directories(${adapter} SYSTEM PRIVATE ${found_includes})
    # The C++ bindings that MPI 3 removed.
    target_compile_definitions(${adapter} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    set_target_properties(${adapter} PROPERTIES CXX_VISIBILITY_PRESET hidden
      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    list(APPEND mpi_adapters ${adapter})
    list(APPEND mpi_adapters_text "${NAME} ${found_version}")
  endif()
endmacro()
lockstep_mpi_adapter(openmpi "Open MPI" ompi-c)
lockstep_mpi_adapter(mpich "MPICH" mpich)
list(JOIN mpi_adapters_text ", " mpi_adapters_text)
if(NOT mpi_adapters)
  set(mpi_adapters_text none)
endif()
# Where programs of the build find them, as do programs of an installed Lockstep.
list(APPEND CMAKE_BUILD_RPATH ${PROJECT_BINARY_DIR})
