# The library that users link, lockstep::lockstep: every module, either as static libraries or as
# one shared library. The modules' objects serve both, so one build has both; BUILD_SHARED_LIBS
# selects the one that programs of this build link, and the default of an installed Lockstep.
option(BUILD_SHARED_LIBS "Link programs with the shared library, liblockstep.so" OFF)
get_property(modules GLOBAL PROPERTY LOCKSTEP_MODULES)

add_library(lockstep INTERFACE)
target_link_libraries(lockstep INTERFACE ${modules})
target_compile_features(lockstep INTERFACE cxx_std_20)

# While the major version is 0, a minor version may change the ABI.
add_library(lockstep_shared SHARED)
set_target_properties(lockstep_shared PROPERTIES
  OUTPUT_NAME lockstep EXPORT_NAME lockstep LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
foreach(module ${modules})
  target_sources(lockstep_shared PRIVATE $<TARGET_OBJECTS:${module}>)
  get_target_property(needed ${module} LINK_LIBRARIES)
  list(REMOVE_ITEM needed ${modules} $<BUILD_INTERFACE:lockstep_options>)
  target_link_libraries(lockstep_shared PRIVATE ${needed})
  add_dependencies(lockstep_shared ${module})
endforeach()
get_property(kernels GLOBAL PROPERTY LOCKSTEP_CUDA_OBJECTS)
if(kernels)
  set_source_files_properties(${kernels} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(lockstep_shared PRIVATE ${kernels})
endif()
# Exports only Lockstep's symbols, not template instantiations of other libraries.
set(symbols ${PROJECT_BINARY_DIR}/liblockstep.map)
configure_file(third_party/liblockstep.map.in ${symbols} @ONLY)
target_link_options(lockstep_shared PRIVATE LINKER:--version-script=${symbols}
  LINKER:--no-undefined)
set_property(TARGET lockstep_shared APPEND PROPERTY LINK_DEPENDS ${symbols})
# Libraries whose headers public headers include: the only dependencies of programs that link the
# shared library.
target_link_libraries(lockstep_shared PUBLIC fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json
  MPI::MPI_CXX)
target_include_directories(lockstep_shared PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
target_include_directories(lockstep_shared INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(lockstep_shared PUBLIC cxx_std_20)
if(LOCKSTEP_SANITIZE)
  # The program provides the sanitizer runtime.
  target_link_options(lockstep_shared PRIVATE -fsanitize=${LOCKSTEP_SANITIZE})
  set_target_properties(lockstep_shared PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

if(BUILD_SHARED_LIBS)
  add_library(lockstep::lockstep ALIAS lockstep_shared)
else()
  add_library(lockstep::lockstep ALIAS lockstep)
endif()
