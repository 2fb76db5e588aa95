# cmake --install, in five components: program, core and library (the shared libraries), development
# (headers, static libraries, files for find_package(lockstep) and pkg-config) and torch (the plugin
# with which the program reads TorchScript files).
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# What the program loads is where it looks (apps/lockstep/torchscript.h).
cmake_path(SET plugin_dir NORMALIZE ${CMAKE_INSTALL_BINDIR}/../lib/lockstep)
if(TARGET lockstep_program)
  install(TARGETS lockstep_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # The adapters to MPI are there too, unless they are beside the shared core.
  if(NOT BUILD_SHARED_LIBS AND mpi_adapters)
    install(TARGETS ${mpi_adapters} LIBRARY DESTINATION ${plugin_dir} COMPONENT program)
    set_property(TARGET lockstep_program APPEND PROPERTY INSTALL_RPATH $ORIGIN/../lib/lockstep)
  endif()
endif()
# Relative paths, so that all can be moved. Under /usr the loader finds the libraries itself.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  file(RELATIVE_PATH library_from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  if(BUILD_SHARED_LIBS AND TARGET lockstep_program)
    set_target_properties(lockstep_program PROPERTIES INSTALL_RPATH $ORIGIN/${library_from_program})
  endif()
  foreach(shared lockstep_shared lockstep_core_shared)
    if(TARGET ${shared})
      set_target_properties(${shared} PROPERTIES INSTALL_RPATH $ORIGIN)
    endif()
  endforeach()
endif()

# If only the program was built, with static libraries, as in scripts/quickstart, the other
# components are not installed.
if(NOT BUILD_SHARED_LIBS AND TARGET lockstep_program)
  set(library_files "")
  foreach(target ${modules} lockstep_core_shared lockstep_shared lockstep_torch
      lockstep_torchscript)
    if(TARGET ${target} AND NOT (LOCKSTEP_SANITIZE AND target MATCHES "_shared$"))
      list(APPEND library_files $<TARGET_FILE:${target}>)
    endif()
  endforeach()
  install(CODE "set(library_files ${library_files})
set(build_libraries \"cmake --build ${PROJECT_BINARY_DIR}\")" ALL_COMPONENTS)
  install(CODE [[
set(not_built ${library_files})
foreach(file ${library_files})
  if(EXISTS "${file}")
    list(REMOVE_ITEM not_built "${file}")
  endif()
endforeach()
if(not_built AND NOT CMAKE_INSTALL_COMPONENT)
  message(STATUS "Installed the program alone: the libraries have not been built. "
"To install them and the headers too:
${build_libraries} && cmake --install ${CMAKE_CURRENT_LIST_DIR} --prefix ${CMAKE_INSTALL_PREFIX}")
  set(CMAKE_INSTALL_COMPONENT program_alone)  # no rule below has this one
elseif(not_built AND NOT CMAKE_INSTALL_COMPONENT STREQUAL "program")
  message(FATAL_ERROR "expected all libraries to be built, for the component "
    "${CMAKE_INSTALL_COMPONENT}: ${build_libraries}")
endif()]] ALL_COMPONENTS)
endif()

# Two sets of targets for each library, of which find_package(lockstep) uses one: both define
# lockstep::core, or lockstep::lockstep.
function(lockstep_install_library NAME STEM COMPONENT)
  install(TARGETS ${NAME} ${ARGN} EXPORT ${STEM}-static-targets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  set(kinds static)
  if(NOT LOCKSTEP_SANITIZE)
    install(TARGETS ${NAME}_shared EXPORT ${STEM}-shared-targets
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${COMPONENT} NAMELINK_COMPONENT
            development)
    list(APPEND kinds shared)
  endif()
  foreach(kind ${kinds})
    install(EXPORT ${STEM}-${kind}-targets NAMESPACE lockstep:: DESTINATION ${package_dir} COMPONENT
      development)
  endforeach()
endfunction()
lockstep_install_library(lockstep_core lockstep-core core ${core})
if(mpi_adapters)
  install(TARGETS ${mpi_adapters} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT core)
endif()
if(TARGET lockstep)
  lockstep_install_library(lockstep lockstep library ${others})
endif()

# Optional parts: find_package(lockstep COMPONENTS torch) reads lockstep-torch.cmake.
if(TARGET lockstep_torch)
  install(TARGETS lockstep_torch EXPORT lockstep-torch-targets ARCHIVE DESTINATION
    ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT lockstep-torch-targets NAMESPACE lockstep:: DESTINATION ${package_dir} COMPONENT
    development)
  install(FILES third_party/lockstep-torch.cmake third_party/libtorch.cmake DESTINATION
    ${package_dir} COMPONENT development)
endif()

if(TARGET lockstep_torchscript)
  install(TARGETS lockstep_torchscript LIBRARY DESTINATION ${plugin_dir} COMPONENT torch)
endif()

# Public headers and the headers that they include, with their folders.
set(public_headers ${PROJECT_SOURCE_DIR}/third_party/public_headers.cmake)
set(headers_left_out "")
if(NOT TARGET lockstep_torch)
  set(headers_left_out lockstep/interop/torch.h)
endif()
install(CODE "set(source ${PROJECT_SOURCE_DIR})
include(${public_headers})
lockstep_public_headers(\${source} headers ${LOCKSTEP_PARTS} ${headers_left_out})
foreach(header \${headers})
  get_filename_component(folder \${header} DIRECTORY)
  file(INSTALL \${source}/\${header} DESTINATION
  \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/\${folder})
endforeach()" COMPONENT development)

install(FILES lockstep/interop/lockstep.f90 DESTINATION
  ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/interop COMPONENT development)

# find_package(lockstep)
set(lockstep_default_kind static)
if(BUILD_SHARED_LIBS)
  set(lockstep_default_kind shared)
endif()
set(lockstep_needs_cuda OFF)
if(cuda_found)
  set(lockstep_needs_cuda ON)
endif()
configure_package_config_file(third_party/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
                              INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR
                              CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY
  SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
  ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
              third_party/dependencies.cmake third_party/Finddnnl.cmake
        DESTINATION ${package_dir} COMPONENT development)

include(pkg_config)

# Shell commands that set up a prefix outside of system folders.
install(CODE "set(bin ${CMAKE_INSTALL_BINDIR})\nset(lib ${CMAKE_INSTALL_LIBDIR})" COMPONENT
  development)
install(CODE [[
get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
if(NOT CMAKE_INSTALL_COMPONENT AND "$ENV{DESTDIR}" STREQUAL "" AND NOT prefix STREQUAL "/usr")
  message(STATUS "To use this Lockstep in a shell:
export CMAKE_PREFIX_PATH=${prefix}\${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
export PKG_CONFIG_PATH=${prefix}/${lib}/pkgconfig\${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PATH=${prefix}/${bin}:$PATH
export LD_LIBRARY_PATH=${prefix}/${lib}\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
endif()]] COMPONENT development)
