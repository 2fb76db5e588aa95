# Flags shared by every target of the project, carried by one interface target.
include(GNUInstallDirs)
add_library(lockstep_options INTERFACE)
target_include_directories(lockstep_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(lockstep_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion
                                                  -Wnon-virtual-dtor -Woverloaded-virtual)
# GCC 12 reports false positives: uninitialized registers in its AVX-512 intrinsics (GCC bug
# 105593), and overlaps in "text" + string (GCC bug 105651) and in copies of strings.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(lockstep_options INTERFACE -Wno-maybe-uninitialized -Wno-restrict
    -Wno-stringop-overflow)
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

# Compiles 16 sources of TARGET at once, which takes less than half of the time. LOCKSTEP_UNITY=OFF
# is for who changes one source again and again.
function(lockstep_group_sources TARGET)
  set_target_properties(${TARGET} PROPERTIES
    UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE 16)
  # GCC treats an included source as a header.
  target_compile_options(${TARGET} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# One module: a static library of these sources that depends only on the modules in DEPENDS. Private
# flags, such as warnings, are not exported by an installed Lockstep. The sources in FUSES are
# compiled alone: beside others, the compiler would fuse other multiplications with additions and
# round differently. The test Structure.Fused finds what is not listed.
function(lockstep_module NAME)
  cmake_parse_arguments(MODULE "" "" "SOURCES;FUSES;DEPENDS;PRIVATE" ${ARGN})
  # Header-only libraries that no public header includes are not exported either.
  list(TRANSFORM MODULE_PRIVATE REPLACE "^(Eigen3::Eigen|lockstep_protozero|lockstep_random123)$"
    "$<BUILD_INTERFACE:\\1>")
  add_library(lockstep_${NAME} STATIC ${MODULE_SOURCES})
  target_link_libraries(lockstep_${NAME} PUBLIC $<BUILD_INTERFACE:lockstep_options>
    ${MODULE_DEPENDS} PRIVATE ${MODULE_PRIVATE})
  target_include_directories(lockstep_${NAME} INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(lockstep_${NAME} PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME
    ${NAME})
  # Only the modules that calculate are optimized for speed; the others compile faster, and round
  # as with -O3. The precompiled headers are those of the first module with the same flags: OpenMP
  # adds one.
  set(first device)
  if(NOT NAME MATCHES "^(base|random|allreduce|model|data|device|interop)$")
    set(first net)
    if(LOCKSTEP_SANITIZE)
      # Without optimization, GCC does not detect that LOCKSTEP_CHECK(false) does not return.
      target_compile_options(lockstep_${NAME} PRIVATE -O0 -Wno-return-type)
    else()
      target_compile_options(lockstep_${NAME} PRIVATE
        $<$<CONFIG:Release>:-O1$<SEMICOLON>-fexpensive-optimizations>)
    endif()
  endif()
  set(reuse REUSE_FROM lockstep_${first})
  if(OpenMP::OpenMP_CXX IN_LIST MODULE_PRIVATE OR NAME STREQUAL first)
    set(reuse "")
  endif()
  # Deferred, because the folder may add sources.
  cmake_language(EVAL CODE
    "cmake_language(DEFER CALL lockstep_precompile lockstep_${NAME} ${reuse})")
  # Some tests replace parts of the device.
  if(LOCKSTEP_SANITIZE OR NOT NAME STREQUAL device)
    lockstep_group_sources(lockstep_${NAME})
  endif()
  if(NOT LOCKSTEP_SANITIZE)
    set_property(SOURCE ${MODULE_FUSES} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES lockstep_${NAME})
endfunction()
