# The libraries that users link: lockstep::core, for programs with a training loop of their own, and
# lockstep::lockstep, which has the core and everything else. Each is there as static libraries and
# as one shared library. The modules' objects serve both, so one build has both; BUILD_SHARED_LIBS
# selects the one that programs of this build link, and the default of an installed Lockstep.
option(BUILD_SHARED_LIBS "Link programs with the shared libraries, liblockstep.so and its core" OFF)

# lockstep_library(NAME EXPORT_NAME MODULE … [ABOVE OTHER]): the library NAME, lib${NAME}.so, of
# these modules and of the library OTHER.
function(lockstep_library NAME EXPORT_NAME)
  cmake_parse_arguments(LIBRARY "" "ABOVE" "" ${ARGN})
  set(own ${LIBRARY_UNPARSED_ARGUMENTS})
  add_library(${NAME} INTERFACE)
  set_target_properties(${NAME} PROPERTIES EXPORT_NAME ${EXPORT_NAME})
  target_link_libraries(${NAME} INTERFACE ${own} ${LIBRARY_ABOVE})

  # While the major version is 0, a minor version may change the ABI.
  set(shared ${NAME}_shared)
  add_library(${shared} SHARED)
  set_target_properties(${shared} PROPERTIES
    OUTPUT_NAME ${NAME} EXPORT_NAME ${EXPORT_NAME} LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  get_property(modules GLOBAL PROPERTY LOCKSTEP_MODULES)
  foreach(module ${own})
    target_sources(${shared} PRIVATE $<TARGET_OBJECTS:${module}>)
    get_target_property(parts ${module} LOCKSTEP_OBJECT_PARTS)
    foreach(part ${parts})
      if(TARGET ${part})
        target_sources(${shared} PRIVATE $<TARGET_OBJECTS:${part}>)
      endif()
    endforeach()
    get_target_property(needed ${module} LINK_LIBRARIES)
    list(REMOVE_ITEM needed ${modules} $<BUILD_INTERFACE:lockstep_options>)
    target_link_libraries(${shared} PRIVATE ${needed})
    add_dependencies(${shared} ${module})
    get_property(kernels GLOBAL PROPERTY LOCKSTEP_CUDA_OBJECTS_${module})
    if(kernels)
      set_source_files_properties(${kernels} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
      target_sources(${shared} PRIVATE ${kernels})
    endif()
  endforeach()
  # Exports only Lockstep's symbols, not template instantiations of other libraries.
  set(symbols ${PROJECT_BINARY_DIR}/liblockstep.map)
  configure_file(third_party/liblockstep.map.in ${symbols} @ONLY)
  target_link_options(${shared} PRIVATE LINKER:--version-script=${symbols} LINKER:--no-undefined)
  set_property(TARGET ${shared} APPEND PROPERTY LINK_DEPENDS ${symbols})
  if(LIBRARY_ABOVE)
    target_link_libraries(${shared} PUBLIC ${LIBRARY_ABOVE}_shared)
  else()
    # Libraries whose headers public headers include: the only dependencies of programs that link
    # the shared library.
    target_link_libraries(${shared} PUBLIC fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json)
  endif()
  target_include_directories(${shared} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_include_directories(${shared} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(LOCKSTEP_SANITIZE)
    # The program provides the sanitizer runtime.
    target_link_options(${shared} PRIVATE -fsanitize=${LOCKSTEP_SANITIZE})
    set_target_properties(${shared} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()

  if(BUILD_SHARED_LIBS)
    add_library(lockstep::${EXPORT_NAME} ALIAS ${shared})
  else()
    add_library(lockstep::${EXPORT_NAME} ALIAS ${NAME})
  endif()
endfunction()

list(TRANSFORM lockstep_core_modules PREPEND lockstep_ OUTPUT_VARIABLE core)
lockstep_library(lockstep_core core ${core})
set(libraries lockstep_core)
get_property(modules GLOBAL PROPERTY LOCKSTEP_MODULES)
if(NOT LOCKSTEP_PARTS STREQUAL "core")
  set(others ${modules})
  list(REMOVE_ITEM others ${core})
  lockstep_library(lockstep lockstep ${others} ABOVE lockstep_core)
  list(APPEND libraries lockstep)
endif()
