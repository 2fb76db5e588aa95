# Flags shared by every target of the project, carried by one interface target.
include(GNUInstallDirs)
add_library(lockstep_options INTERFACE)
target_include_directories(lockstep_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(lockstep_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor$<SEMICOLON>-Woverloaded-virtual>)
# GCC 12 reports false positives: uninitialized registers in its AVX-512 intrinsics (GCC bug
# 105593), and overlaps in "text" + string (GCC bug 105651) and in copies of strings.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(lockstep_options INTERFACE -Wno-maybe-uninitialized -Wno-restrict
    -Wno-stringop-overflow)
endif()
# Memory is cheaper than the tenth of the time that GCC spends on collecting it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(lockstep_options INTERFACE --param=ggc-min-heapsize=524288)
endif()
# Failed checks show file names relative to the checkout.
target_compile_options(lockstep_options INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_options INTERFACE -Werror)
endif()
if(LOCKSTEP_ARCH)
  target_compile_options(lockstep_options INTERFACE -march=${LOCKSTEP_ARCH})
endif()
if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR
      "LOCKSTEP_FUZZ=ON needs clang, whose libFuzzer it uses; the compiler is ${CMAKE_CXX_COMPILER_ID}.")
  endif()
  target_compile_options(lockstep_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
# Never -ffast-math: results must be bitwise reproducible on 1 or N replicas. A report of any
# sanitizer ends the process, so that the test fails.
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # The release build checks the formats.
  target_compile_definitions(lockstep_options INTERFACE FMT_CONSTEVAL=)
  # The address sanitizer finds these too.
  if(LOCKSTEP_SANITIZE MATCHES "address.*undefined")
    target_compile_options(lockstep_options INTERFACE -fno-sanitize=null,object-size)
  endif()
  target_link_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# Compiles sources of TARGET together: what they share, headers and templates, is compiled once.
# Position-independent, for the shared libraries and as the precompiled headers.
# LOCKSTEP_UNITY=OFF is for who changes one source again and again.
function(lockstep_group_sources TARGET)
  set_target_properties(${TARGET} PROPERTIES POSITION_INDEPENDENT_CODE ON
    UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE 48)
  # GCC treats an included source as a header.
  target_compile_options(${TARGET} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# Options of code that runs rarely, which then compiles in two thirds of the time.
if(LOCKSTEP_SANITIZE)
  # Without optimization, GCC does not detect that LOCKSTEP_CHECK(false) does not return.
  set(lockstep_rare_options -O0 -Wno-return-type)
else()
  set(lockstep_rare_options $<$<CONFIG:Release>:-Og>)
endif()

# lockstep_precompile_later(NAME FIRST [HEADER…]): NAME uses the precompiled headers of FIRST: the
# common ones and these. Deferred, because the folder may add sources.
function(lockstep_precompile_later NAME FIRST)
  set(headers REUSE_FROM ${FIRST})
  if(NAME STREQUAL FIRST)
    set(headers ${ARGN})
  endif()
  cmake_language(EVAL CODE "cmake_language(DEFER CALL lockstep_precompile ${NAME} ${headers})")
endfunction()

# lockstep_part(MODULE PART SOURCE…): the objects lockstep_MODULE_PART, for all its libraries.
function(lockstep_part MODULE PART)
  set(part lockstep_${MODULE}_${PART})
  add_library(${part} OBJECT ${ARGN})
  get_target_property(libraries lockstep_${MODULE} LOCKSTEP_PART_LIBRARIES)
  target_link_libraries(${part} PRIVATE lockstep_options ${libraries})
  target_sources(lockstep_${MODULE} PRIVATE $<TARGET_OBJECTS:${part}>)
  set_property(TARGET lockstep_${MODULE} APPEND PROPERTY LOCKSTEP_OBJECT_PARTS ${part})
endfunction()

# lockstep_often(TARGET): its sources run often. OpenMP is for loops of some of them; the flag is
# everywhere, for the same precompiled headers.
function(lockstep_often TARGET)
  target_compile_options(${TARGET} PRIVATE ${OpenMP_CXX_FLAGS})
  lockstep_precompile_later(${TARGET} lockstep_base)
  lockstep_group_sources(${TARGET})
endfunction()

# lockstep_rarely(TARGET): its sources run rarely.
function(lockstep_rarely TARGET)
  target_compile_options(${TARGET} PRIVATE ${lockstep_rare_options})
  lockstep_precompile_later(${TARGET} lockstep_base_rare
    <fmt/ranges.h> <nlohmann/json.hpp> <spdlog/logger.h>)
  lockstep_group_sources(${TARGET})
endfunction()

# One module: a static library of these sources that depends only on the modules in DEPENDS. Private
# flags, such as warnings, are not exported by an installed Lockstep. SOURCES run for each step,
# operation or record, and are optimized for speed. Those in FUSES are too, but compiled alone:
# beside others, the compiler would fuse other multiplications with additions and round differently;
# the test Structure.Fused finds what is not listed. RARE are the others, which run once per run,
# file or error.
function(lockstep_module NAME)
  cmake_parse_arguments(MODULE "" "" "SOURCES;FUSES;RARE;DEPENDS;PRIVATE" ${ARGN})
  # Header-only libraries that no public header includes are not exported either.
  list(TRANSFORM MODULE_PRIVATE REPLACE "^(Eigen3::Eigen|lockstep_protozero|lockstep_random123)$"
    "$<BUILD_INTERFACE:\\1>")
  set(module lockstep_${NAME})
  set(libraries ${MODULE_DEPENDS} ${MODULE_PRIVATE})
  list(REMOVE_ITEM libraries OpenMP::OpenMP_CXX)
  if(MODULE_SOURCES)
    add_library(${module} STATIC ${MODULE_SOURCES} ${MODULE_FUSES})
    lockstep_often(${module})
    if(NOT LOCKSTEP_SANITIZE)
      set_property(SOURCE ${MODULE_FUSES} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
      if(NAME STREQUAL device)  # some tests replace parts of it
        set_target_properties(${module} PROPERTIES UNITY_BUILD OFF)
      endif()
    endif()
  else()
    add_library(${module} STATIC ${MODULE_RARE})
    lockstep_rarely(${module})
  endif()
  set_target_properties(${module} PROPERTIES EXPORT_NAME ${NAME}
    LOCKSTEP_PART_LIBRARIES "${libraries}")
  target_link_libraries(${module} PUBLIC $<BUILD_INTERFACE:lockstep_options>
    ${MODULE_DEPENDS} PRIVATE ${MODULE_PRIVATE})
  target_include_directories(${module} INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(MODULE_SOURCES AND MODULE_RARE)
    lockstep_part(${NAME} rare ${MODULE_RARE})
    lockstep_rarely(${module}_rare)
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES ${module})
endfunction()
