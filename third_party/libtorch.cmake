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
  # A wheel has headers of another fmt beside its own, which must not hide those that our libraries were built with.
  list(GET TORCH_INCLUDE_DIRS 0 torch_include)
  find_path(FMT_INCLUDE fmt/format.h NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH)
  mark_as_advanced(FMT_INCLUDE)
  if(EXISTS ${torch_include}/fmt AND FMT_INCLUDE AND NOT torch_include STREQUAL FMT_INCLUDE)
    file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fmt_of_lockstep)
    file(CREATE_LINK ${FMT_INCLUDE}/fmt ${CMAKE_CURRENT_BINARY_DIR}/fmt_of_lockstep/fmt SYMBOLIC)
    list(PREPEND TORCH_INCLUDE_DIRS ${CMAKE_CURRENT_BINARY_DIR}/fmt_of_lockstep)
  endif()
  target_include_directories(lockstep_libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_link_libraries(lockstep_libtorch INTERFACE torch_library ${TORCH_LIBRARIES})
  target_compile_options(lockstep_libtorch INTERFACE ${TORCH_CXX_FLAGS})
endif()
