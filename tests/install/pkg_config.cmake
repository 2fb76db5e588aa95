# Programs that use only the compiler and pkg-config: one in C, and one in C++ that is linked with
# the shared library and, if that is absent, with the static ones.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)
set(folder ${WORK}/pkg_config)
file(REMOVE_RECURSE ${folder})
file(COPY ${prefix}/include DESTINATION ${folder})
file(COPY ${prefix}/${LIBDIR}/ DESTINATION ${folder}/${LIBDIR} PATTERN "liblockstep.so*" EXCLUDE
  PATTERN "liblockstep_core.so*" EXCLUDE)

# flags(OUT PREFIX OPTION …): sets OUT to the flags from pkg-config for the Lockstep in PREFIX.
function(flags OUT PREFIX)
  output_of(text ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${PREFIX}/${LIBDIR}/pkgconfig ${PKG_CONFIG}
    ${ARGN} lockstep)
  separate_arguments(text UNIX_COMMAND "${text}")
  set(${OUT} ${text} PARENT_SCOPE)
endfunction()

# The headers cause no warnings either.
flags(compile ${prefix} --cflags)
run(${LAUNCHER} ${COMPILER} -std=c++20 -O2 -Wall -Wextra -Wconversion -Wsign-conversion -Werror
  ${compile} -I${TESTS}/consumer/own -c
  ${TESTS}/consumer/main.cpp -o ${folder}/main.o)
flags(shared ${prefix} --libs)
run(${COMPILER} ${folder}/main.o ${shared} -Wl,-rpath,${prefix}/${LIBDIR} -o ${folder}/shared)
expect_training(${folder}/shared)
run(${C_COMPILER} -std=c11 -Wall -Werror ${compile} ${TESTS}/consumer/main.c ${shared}
  -Wl,-rpath,${prefix}/${LIBDIR} -o ${folder}/of_c)
output_of(said ${MPIEXEC} -np 2 ${folder}/of_c)
expect_match("${said}" "Lockstep [0-9.]+, rank 1 of 2")

# Without C++20, the first error explains the requirement.
file(WRITE ${folder}/before.cpp "#include <lockstep/lockstep.h>\n")
execute_process(COMMAND ${COMPILER} -std=c++17 ${compile} -fsyntax-only ${folder}/before.cpp
  RESULT_VARIABLE status ERROR_VARIABLE said)
expect_match("${said}"
  "error: (#error )?\"Lockstep requires C\\+\\+20: compile with -std=c\\+\\+20")
if(status EQUAL 0)
  message(FATAL_ERROR "compiled as C++17 without an error")
endif()

flags(static ${folder} --static --libs)
run(${COMPILER} ${folder}/main.o ${static} -o ${folder}/static)
expect_training(${folder}/static)
