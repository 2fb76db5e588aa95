# Builds with sanitizers compile the headers that nearly all files include once. The release build does not, and so holds every file to
# its own includes.
set(LOCKSTEP_PRECOMPILED FALSE)
if(LOCKSTEP_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(LOCKSTEP_PRECOMPILED TRUE)
  if(CCACHE)
    # ccache keeps no results that come from precompiled headers unless it is told that these two do not matter.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  endif()
endif()
set(lockstep_precompiled_headers
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric>
  <optional> <random> <span> <sstream> <string> <string_view> <thread> <tuple> <variant> <vector> <fmt/format.h>)

# lockstep_precompile(TARGET): for a room, once its folder is read.
function(lockstep_precompile TARGET)
  target_precompile_headers(${TARGET} PRIVATE ${lockstep_precompiled_headers})
  # A file with options of its own cannot use what was compiled without them.
  get_target_property(sources ${TARGET} SOURCES)
  foreach(source ${sources})
    get_property(options SOURCE ${source} PROPERTY COMPILE_OPTIONS)
    if(options)
      set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()
