# cpack -G DEB: four packages, split as Debian splits libraries, and one with the plugin for
# TorchScript files where LibTorch is Debian's. `cmake --workflow --preset package` builds them for
# a portable processor level; a package of a build with LOCKSTEP_ARCH=native runs only on similar
# machines.
set(LOCKSTEP_MAINTAINER "The Lockstep authors <lockstep@example.org>" CACHE STRING
  "Who answers for the packages: Name <address>")
set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(core_package liblockstep-core${soversion})
set(library_package liblockstep${soversion})
set(same_version "(= ${PROJECT_VERSION}-1)")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR Lockstep)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(packaged core development)
if(TARGET lockstep)
  list(APPEND packaged program library)
endif()
# A package can depend on packages, not on a wheel.
if(TARGET lockstep_torchscript AND Torch_DIR MATCHES "^/usr/(lib|share)/")
  list(APPEND packaged torch)
endif()
set(CPACK_COMPONENTS_ALL ${packaged})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${LOCKSTEP_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

set(built "")
if(LOCKSTEP_ARCH)
  set(built "\n Built for processors of the kind ${LOCKSTEP_ARCH}.")
endif()
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME lockstep)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "openmpi-bin | mpich")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "synchronous data-parallel training, the program
Trains networks on one processor, on several GPUs or on many ranks under mpirun, and computes the
same gradient everywhere.${built}")

set(CPACK_DEBIAN_CORE_PACKAGE_NAME ${core_package})
set(CPACK_DEBIAN_CORE_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_CORE_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_CORE_PACKAGE_SUGGESTS "openmpi-bin | mpich")
set(CPACK_COMPONENT_CORE_DESCRIPTION
  "synchronous data-parallel training, for programs with a loop of their own
The wrapper of optimizers, the collectives and the job: what programs need that were linked with
Lockstep's core.${built}")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "${core_package} ${same_version}")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY >=)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "synchronous data-parallel training, the shared library
What programs need that were linked with Lockstep.${built}")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME liblockstep-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(newest_package ${core_package})
if(TARGET lockstep)
  set(newest_package ${library_package})
endif()
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "${newest_package} ${same_version}, libfmt-dev, libspdlog-dev, nlohmann-json3-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS
    "cmake (>= 3.25), pkg-config, libopenmpi-dev | libmpich-dev, libdnnl-dev, libisal-dev, libxxhash-dev, libjpeg62-turbo-dev, libpng-dev, libutf8proc-dev, zlib1g-dev, libssl-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
  "synchronous data-parallel training, to build programs with
Headers, static libraries, and what CMake's find_package and pkg-config need. To link the static
libraries takes the suggested packages.")

set(CPACK_DEBIAN_TORCH_PACKAGE_NAME lockstep-torch)
set(CPACK_DEBIAN_TORCH_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TORCH_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TORCH_PACKAGE_DEPENDS "lockstep ${same_version}")
set(CPACK_COMPONENT_TORCH_DESCRIPTION "synchronous data-parallel training, TorchScript files
With this plugin the program trains networks of TorchScript files: lockstep train --model
FILE.pt.${built}")

# Debian requires a copyright file and a changelog in each package.
set(copyright ${PROJECT_BINARY_DIR}/copyright)
file(WRITE ${copyright} "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Lockstep

Files: *
Copyright: The Lockstep authors
License: Apache-2.0
 On Debian systems the text of the license is in /usr/share/common-licenses/Apache-2.0.
")
find_program(GZIP gzip)
foreach(component ${packaged})
  string(TOUPPER ${component} upper)
  set(folder ${CMAKE_INSTALL_DATAROOTDIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  install(FILES ${copyright} DESTINATION ${folder} COMPONENT ${component} EXCLUDE_FROM_ALL)
  if(GZIP)
    install(CODE "execute_process(COMMAND ${GZIP} -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  OUTPUT_FILE \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}/changelog.Debian.gz
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
endforeach()

if(BUILD_SHARED_LIBS)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "${library_package} ${same_version}")
endif()
# Where dpkg-shlibdeps finds our libraries, which need each other.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
include(CPack)
