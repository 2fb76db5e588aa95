# LibTorch, of Debian's package or of a wheel (CMAKE_PREFIX_PATH=…/torch), as the target
# lockstep_libtorch: only its headers and libraries, without the flags of its configuration. An
# installed Lockstep finds it again with this file.
set(torch_found FALSE)
# Sanitizers would report LibTorch itself.
if(LOCKSTEP_TORCH STREQUAL "ON" AND LOCKSTEP_SANITIZE)
  message(FATAL_ERROR
    "LOCKSTEP_TORCH=ON needs a build without sanitizers; LOCKSTEP_SANITIZE is ${LOCKSTEP_SANITIZE}. Use LOCKSTEP_TORCH=AUTO.")
endif()
if(NOT LOCKSTEP_TORCH STREQUAL "OFF" AND NOT LOCKSTEP_SANITIZE)
  # Suppresses its long output about how LibTorch was built.
  set(level_before ${CMAKE_MESSAGE_LOG_LEVEL})
  set(flags_before ${CMAKE_CXX_FLAGS})
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  find_package(Torch QUIET)
  set(CMAKE_MESSAGE_LOG_LEVEL ${level_before})
  set(CMAKE_CXX_FLAGS ${flags_before})
  set(is_needed WARNING)
  if(LOCKSTEP_TORCH STREQUAL "ON")
    set(is_needed FATAL_ERROR)
  endif()
  if(Torch_FOUND AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION
    VERSION_LESS 15)
    message(${is_needed}
      "lockstep::torch is left out: clang ${CMAKE_CXX_COMPILER_VERSION} does not compile the headers of LibTorch as C++20. Use clang 15 or newer, or GCC.")
  elseif(Torch_FOUND AND TORCH_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    message(${is_needed}
      "lockstep::torch needs a LibTorch with the current ABI of libstdc++; that of ${Torch_DIR} has the old one (_GLIBCXX_USE_CXX11_ABI=0), which does not link.")
  elseif(Torch_FOUND)
    set(torch_found TRUE)
  elseif(LOCKSTEP_TORCH STREQUAL "ON")
    message(FATAL_ERROR
      "LOCKSTEP_TORCH=ON needs LibTorch; none was found. Install libtorch-dev, add the folder of a torch wheel to CMAKE_PREFIX_PATH, "
                        "or use LOCKSTEP_TORCH=AUTO.")
  endif()
endif()
if(torch_found)
  add_library(lockstep_libtorch INTERFACE IMPORTED)
  # A wheel includes headers of another fmt, which must not hide the ones that Lockstep is built
  # with.
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
  # A wheel's libraries load CUDA's libraries next to them; the linker may find older ones of the
  # system.
  target_link_options(lockstep_libtorch INTERFACE LINKER:--allow-shlib-undefined)
  # It also contains a oneDNN. Some of its functions (callbacks of std::call_once) hide ours if they
  # are loaded first. This is a linker option, because CMake orders dependencies last.
  target_link_options(lockstep_libtorch INTERFACE
    LINKER:--push-state,--no-as-needed,$<TARGET_FILE:DNNL::dnnl>,--pop-state)
endif()
