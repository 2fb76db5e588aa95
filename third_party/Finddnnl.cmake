# Finds oneDNN: the target DNNL::dnnl and dnnl_VERSION.
#
# oneDNN's package file requires OpenCL's headers if it was built with its GPU engine, as in Debian;
# the CPU engine does not need them.
find_path(dnnl_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(dnnl_LIBRARY dnnl)
mark_as_advanced(dnnl_INCLUDE_DIR dnnl_LIBRARY)

if(dnnl_INCLUDE_DIR)
  file(STRINGS ${dnnl_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_VERSION REGEX
    "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM dnnl_VERSION REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN dnnl_VERSION "." dnnl_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(dnnl REQUIRED_VARS dnnl_LIBRARY dnnl_INCLUDE_DIR VERSION_VAR
  dnnl_VERSION)

if(dnnl_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${dnnl_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${dnnl_INCLUDE_DIR})
endif()
