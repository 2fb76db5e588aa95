# cmake --install, in four components: program, library (the shared library), development (headers,
# static libraries, files for find_package(lockstep) and pkg-config) and torch (the plugin with
# which the program reads TorchScript files).
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

install(TARGETS lockstep_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
if(BUILD_SHARED_LIBS AND NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  # A relative path, so that both can be moved. Under /usr the loader finds the library itself.
  file(RELATIVE_PATH library_from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(lockstep_program PROPERTIES INSTALL_RPATH $ORIGIN/${library_from_program})
endif()

# If only the program was built, with static libraries, as in scripts/quickstart, the other
# components are not installed.
if(NOT BUILD_SHARED_LIBS)
  set(library_files "")
  foreach(target ${modules} lockstep_shared lockstep_torch lockstep_torchscript)
    if(TARGET ${target} AND NOT (LOCKSTEP_SANITIZE AND target STREQUAL "lockstep_shared"))
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

# Two sets of targets, of which find_package(lockstep) uses one: each defines lockstep::lockstep.
install(TARGETS lockstep ${modules} EXPORT lockstep-static-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT lockstep-static-targets NAMESPACE lockstep:: DESTINATION ${package_dir} COMPONENT
  development)
if(NOT LOCKSTEP_SANITIZE)
  install(TARGETS lockstep_shared EXPORT lockstep-shared-targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT
          development)
  install(EXPORT lockstep-shared-targets NAMESPACE lockstep:: DESTINATION ${package_dir} COMPONENT
    development)
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

# The relative path where the program looks for it (apps/lockstep/torchscript.h).
if(TARGET lockstep_torchscript)
  cmake_path(SET plugin_dir NORMALIZE ${CMAKE_INSTALL_BINDIR}/../lib/lockstep)
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
lockstep_public_headers(\${source} headers ${headers_left_out})
foreach(header \${headers})
  get_filename_component(folder \${header} DIRECTORY)
  file(INSTALL \${source}/\${header} DESTINATION
  \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/\${folder})
endforeach()" COMPONENT development)

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
                              INSTALL_DESTINATION ${package_dir})
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
