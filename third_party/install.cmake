# cmake --install: the program, the headers and libraries, and what find_package(lockstep) needs.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

install(TARGETS lockstep_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

get_property(rooms GLOBAL PROPERTY LOCKSTEP_ROOMS)
install(TARGETS lockstep ${rooms} EXPORT lockstepTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${package_dir})
install(DIRECTORY device allreduce model data strategy interop DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep FILES_MATCHING PATTERN "*.h")
install(FILES lockstep.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)

set(LOCKSTEP_CUDA_BUILT OFF)
if(cuda_found)
  set(LOCKSTEP_CUDA_BUILT ON)
endif()
configure_package_config_file(third_party/lockstepConfig.cmake.in ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
              third_party/dependencies.cmake third_party/Finddnnl.cmake
        DESTINATION ${package_dir})
