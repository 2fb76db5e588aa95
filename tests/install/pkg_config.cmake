# A program that knows the compiler and pkg-config alone: compiled once, linked with the shared library, and with the static ones where no
# shared library lies beside them.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)
set(folder ${WORK}/pkg_config)
file(REMOVE_RECURSE ${folder})
file(COPY ${prefix}/include DESTINATION ${folder})
file(COPY ${prefix}/${LIBDIR}/ DESTINATION ${folder}/${LIBDIR} PATTERN "*.so*" EXCLUDE)

# flags(OUT PREFIX OPTION …): what pkg-config says of the Lockstep in PREFIX, as a list.
function(flags OUT PREFIX)
  output_of(text ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${PREFIX}/${LIBDIR}/pkgconfig ${PKG_CONFIG} ${ARGN} lockstep)
  separate_arguments(text UNIX_COMMAND "${text}")
  set(${OUT} ${text} PARENT_SCOPE)
endfunction()

flags(compile ${prefix} --cflags)
run(${LAUNCHER} ${COMPILER} -std=c++20 -O2 ${compile} -c ${TESTS}/consumer/main.cpp -o ${folder}/main.o)
flags(shared ${prefix} --libs)
run(${COMPILER} ${folder}/main.o ${shared} -Wl,-rpath,${prefix}/${LIBDIR} -o ${folder}/shared)
expect_training(${folder}/shared)
flags(static ${folder} --static --libs)
run(${COMPILER} ${folder}/main.o ${static} -o ${folder}/static)
expect_training(${folder}/static)
