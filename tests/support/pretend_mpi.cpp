// A library with the file name of Open MPI's, and the objects that its mpi.h declares, but by its
// own description another one.
#include <cstring>

extern "C" {
int MPI_Get_library_version(char* text, int* length) {
  std::strcpy(text, "Pretended MPI 1.0, for tests");
  *length = static_cast<int>(std::strlen(text));
  return 0;
}

char ompi_mpi_byte, ompi_mpi_comm_null, ompi_mpi_comm_world, ompi_mpi_datatype_null,
    ompi_mpi_double, ompi_mpi_errors_return, ompi_mpi_float, ompi_mpi_group_null,
    ompi_mpi_info_null, ompi_mpi_int, ompi_mpi_int32_t, ompi_mpi_int64_t, ompi_mpi_op_max,
    ompi_mpi_op_min, ompi_mpi_op_null, ompi_mpi_op_prod, ompi_mpi_op_sum, ompi_mpi_uint8_t,
    ompi_request_null;
}
