# Speeds up a full build: headers that nearly all files include are compiled once, and several
# sources at once. Each file still includes what it uses: scripts/lint compiles each separately.
set(precompile_by_default OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(precompile_by_default ON)
endif()
option(LOCKSTEP_PRECOMPILE "Precompile headers: a third less time for a whole build"
  ${precompile_by_default})
option(LOCKSTEP_UNITY
  "Compile several sources of a module or of a test program at once: half of a build's time" ON)
set(lockstep_precompiled_headers
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <filesystem> <fstream>
  <functional> <map> <memory> <mutex> <numeric>
  <optional> <random> <span> <sstream> <string> <string_view> <thread> <tuple> <variant> <vector>
  <fmt/format.h>)

# lockstep_precompile(TARGET [HEADER…] [REUSE_FROM OTHER]): precompiles the common headers and
# these, or reuses those of another target with the same flags; for a target whose sources are all
# listed.
function(lockstep_precompile TARGET)
  cmake_parse_arguments(PRECOMPILE "" "REUSE_FROM" "" ${ARGN})
  get_target_property(sources ${TARGET} SOURCES)
  if(NOT LOCKSTEP_PRECOMPILE)
    return()
  endif()
  if(PRECOMPILE_REUSE_FROM)
    target_precompile_headers(${TARGET} REUSE_FROM ${PRECOMPILE_REUSE_FROM})
  else()
    target_precompile_headers(${TARGET} PRIVATE ${lockstep_precompiled_headers}
      ${PRECOMPILE_UNPARSED_ARGUMENTS})
  endif()
  # A file with private options cannot use headers that were compiled without them.
  foreach(source ${sources})
    get_property(options SOURCE ${source} PROPERTY COMPILE_OPTIONS)
    if(options)
      set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()
