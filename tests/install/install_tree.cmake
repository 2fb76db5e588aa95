# cmake --install into a folder of its own, for the other tests; and what lies there.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)
file(REMOVE_RECURSE ${WORK})
output_of(said ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
# The lines that it prints for the shell are such that programs are found.
string(REGEX MATCHALL "export [A-Z_]+=[^\n]+" lines "${said}")
list(LENGTH lines count)
if(NOT count EQUAL 4)
  message(FATAL_ERROR "needed 4 lines for the shell; there are ${lines}")
endif()
list(JOIN lines "\n" lines)
output_of(found env -u LD_LIBRARY_PATH sh -c "${lines}
command -v lockstep
${PKG_CONFIG} --variable=pcfiledir lockstep
echo $CMAKE_PREFIX_PATH
echo $LD_LIBRARY_PATH")
expect_match("${found}"
  "^${prefix}/bin/lockstep\n${prefix}/${LIBDIR}/pkgconfig\n${prefix}[^\n]*\n${prefix}/${LIBDIR}$")
# Packagers install below another root, for which those lines are wrong.
output_of(said ${CMAKE_COMMAND} -E env DESTDIR=${WORK}/root ${CMAKE_COMMAND} --install ${BUILD}
  --prefix /opt/lockstep)
file(REMOVE_RECURSE ${WORK}/root)
if(said MATCHES "export ")
  message(FATAL_ERROR "printed lines for the shell:\n${said}")
endif()
# What is loaded when first needed is none of the program's own libraries.
file(GLOB files ${prefix}/${LIBDIR}/cmake/lockstep/*targets*.cmake
  ${prefix}/${LIBDIR}/pkgconfig/lockstep.pc)
list(LENGTH files count)
if(count LESS 5)
  message(FATAL_ERROR "needed the targets of two libraries and lockstep.pc; there are ${files}")
endif()
foreach(file ${files})
  file(STRINGS ${file} asked_for REGEX "cudnn|cublas|nccl|${BUILD}")
  if(asked_for)
    message(FATAL_ERROR "${file} asks for ${asked_for}")
  endif()
endforeach()
foreach(internal model/cuda allreduce/transport allreduce/algorithm model/plan.h)
  if(EXISTS ${prefix}/include/lockstep/${internal})
    message(FATAL_ERROR "${internal} is the library's own business, and was installed")
  endif()
endforeach()
output_of(program ${prefix}/bin/lockstep --version)
output_of(library ${PKG_CONFIG} --modversion ${prefix}/${LIBDIR}/pkgconfig/lockstep.pc)
expect_match("${program}" "^lockstep ${library}$")
if(TORCH)
  expect_plugin(${prefix}/bin/lockstep ${WORK})
endif()
