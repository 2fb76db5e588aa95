# LibTorch, of Debian's package or of a wheel (CMAKE_PREFIX_PATH=…/torch), as the target lockstep_libtorch: its headers and libraries
# alone, without what its configuration adds to flags. An installed Lockstep finds it again with this file.
set(torch_found FALSE)
# Sanitizers would find what it does, and not what we do with it.
if(NOT LOCKSTEP_TORCH STREQUAL "OFF" AND NOT LOCKSTEP_SANITIZE)
  # It tells at length what it was built with, and what it could not find of that.
  set(level_before ${CMAKE_MESSAGE_LOG_LEVEL})
  set(flags_before ${CMAKE_CXX_FLAGS})
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  find_package(Torch QUIET)
  set(CMAKE_MESSAGE_LOG_LEVEL ${level_before})
  set(CMAKE_CXX_FLAGS ${flags_before})
  if(Torch_FOUND)
    set(torch_found TRUE)
  elseif(LOCKSTEP_TORCH STREQUAL "ON")
    message(FATAL_ERROR "LOCKSTEP_TORCH=ON needs LibTorch; none was found. Install libtorch-dev, add the folder of a torch wheel to CMAKE_PREFIX_PATH, "
                        "or use LOCKSTEP_TORCH=AUTO.")
  endif()
endif()
if(torch_found)
  add_library(lockstep_libtorch INTERFACE IMPORTED)
  target_include_directories(lockstep_libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_link_libraries(lockstep_libtorch INTERFACE torch_library ${TORCH_LIBRARIES})
  target_compile_options(lockstep_libtorch INTERFACE ${TORCH_CXX_FLAGS})
endif()
