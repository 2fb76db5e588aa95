# lockstep-core.pc and lockstep.pc. `pkg-config --libs lockstep` links the shared libraries, with
# `--static` also the dependencies of the static ones. Users of the shared libraries need only the
# development files that public headers include, so the rest are plain linker options.
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(pc_cuda "")
if(cuda_found)
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  set(pc_cuda "${cudart} -lrt")
endif()
foreach(library ${libraries})
  string(REPLACE "_" "-" pc ${library})
  configure_file(third_party/${pc}.pc.in ${PROJECT_BINARY_DIR}/${pc}.pc @ONLY)
  # A linker script, with which `-llockstep` finds all static libraries in static links.
  set(pc_modules ${core})
  if(library STREQUAL "lockstep")
    set(pc_modules ${others})
  endif()
  list(TRANSFORM pc_modules PREPEND -l)
  list(JOIN pc_modules " " pc_modules)
  file(WRITE ${PROJECT_BINARY_DIR}/lib${library}.a
    "/* Static libraries of Lockstep, as one. */\nGROUP ( ${pc_modules} )\n")
  install(FILES ${PROJECT_BINARY_DIR}/${pc}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
  install(FILES ${PROJECT_BINARY_DIR}/lib${library}.a DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT development)
endforeach()
