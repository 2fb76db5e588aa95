// The adapter for one kind of MPI library (mpi_functions.h). Compiled once with the mpi.h of each
// kind, and linked to none: the process loads the library before the adapter.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "lockstep/allreduce/transport/mpi/mpi_functions.h"

namespace lockstep::inline v0::allreduce {
namespace {

// A handle of Open MPI is a pointer, one of MPICH an integer that is not 0.
template <typename Type>
constexpr std::size_t kHandleBytes = sizeof(Type);  // NOLINT(bugprone-sizeof-expression)

template <typename Type>
MpiHandle pack(Type handle, Type none) {
  static_assert(kHandleBytes<Type> <= sizeof(MpiHandle));
  MpiHandle packed = 0;
  if (handle != none) std::memcpy(&packed, &handle, kHandleBytes<Type>);
  return packed;
}

template <typename Type>
Type unpack(MpiHandle packed, Type none) {
  Type handle = none;
  if (packed != 0) std::memcpy(&handle, &packed, kHandleBytes<Type>);
  return handle;
}

MPI_Comm comm(MpiHandle packed) { return unpack<MPI_Comm>(packed, MPI_COMM_NULL); }
MpiHandle packed_comm(MPI_Comm comm) { return pack<MPI_Comm>(comm, MPI_COMM_NULL); }
MpiHandle packed_request(MPI_Request request) {
  return pack<MPI_Request>(request, MPI_REQUEST_NULL);
}
MPI_Datatype type(MpiHandle packed) { return unpack<MPI_Datatype>(packed, MPI_DATATYPE_NULL); }
MPI_Op op(MpiHandle packed) { return unpack<MPI_Op>(packed, MPI_OP_NULL); }

// Writes as much of what `write` writes as fits into `text`.
template <typename Write>
void write_text(char* text, int size, const Write& write) {
  std::array<char, std::max(MPI_MAX_LIBRARY_VERSION_STRING, MPI_MAX_ERROR_STRING) + 1> whole{};
  int length = 0;
  write(whole.data(), &length);
  const auto fits = static_cast<std::size_t>(std::clamp(length, 0, size - 1));
  std::memcpy(text, whole.data(), fits);
  text[fits] = '\0';
}

void describe(char* text, int size) { write_text(text, size, MPI_Get_library_version); }

void describe_status(int status, char* text, int size) {
  write_text(text, size,
             [&](char* whole, int* length) { MPI_Error_string(status, whole, length); });
}

bool is_initialized() {
  int answer = 0;
  MPI_Initialized(&answer);
  return answer != 0;
}

bool is_finalized() {
  int answer = 0;
  MPI_Finalized(&answer);
  return answer != 0;
}

int initialize(int* argc, char*** argv) {
  int provided = MPI_THREAD_SINGLE;
  return MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided);
}

bool allows_turns() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  return provided >= MPI_THREAD_SERIALIZED;
}

void finalize() { MPI_Finalize(); }
void abort(MpiHandle communicator, int status) { MPI_Abort(comm(communicator), status); }

MpiHandle world() { return packed_comm(MPI_COMM_WORLD); }

// Open MPI answers with a null pointer if the integer is no handle.
MpiHandle from_fortran(int communicator) { return packed_comm(MPI_Comm_f2c(communicator)); }
int to_fortran(MpiHandle communicator) { return MPI_Comm_c2f(comm(communicator)); }

bool is_between_groups(MpiHandle communicator) {
  int answer = 0;
  MPI_Comm_test_inter(comm(communicator), &answer);
  return answer != 0;
}

int rank(MpiHandle communicator) {
  int rank = 0;
  MPI_Comm_rank(comm(communicator), &rank);
  return rank;
}

int size(MpiHandle communicator) {
  int size = 0;
  MPI_Comm_size(comm(communicator), &size);
  return size;
}

int duplicate(MpiHandle communicator, MpiHandle* copy) {
  MPI_Comm made = MPI_COMM_NULL;
  const int status = MPI_Comm_dup(comm(communicator), &made);
  *copy = packed_comm(made);
  return status;
}

int split_by_node(MpiHandle communicator, MpiHandle* node) {
  MPI_Comm made = MPI_COMM_NULL;
  const int status = MPI_Comm_split_type(comm(communicator), MPI_COMM_TYPE_SHARED,
                                         rank(communicator), MPI_INFO_NULL, &made);
  *node = packed_comm(made);
  return status;
}

int create_subset(MpiHandle communicator, const int* members, int count, int tag,
                  MpiHandle* subset) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_group(comm(communicator), &all);
  MPI_Group_incl(all, count, members, &some);
  const int status = MPI_Comm_create_group(comm(communicator), some, tag, &made);
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  *subset = packed_comm(made);
  return status;
}

void return_errors(MpiHandle communicator) {
  MPI_Comm_set_errhandler(comm(communicator), MPI_ERRORS_RETURN);
}

void free_communicator(MpiHandle communicator) {
  MPI_Comm freed = comm(communicator);
  MPI_Comm_free(&freed);
}

int send(MpiHandle communicator, int to, int tag, const void* data, int bytes, MpiHandle* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int status = MPI_Isend(data, bytes, MPI_BYTE, to, tag, comm(communicator), &made);
  *request = packed_request(made);
  return status;
}

int receive(MpiHandle communicator, int from, int tag, void* data, int bytes, MpiHandle* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int status = MPI_Irecv(data, bytes, MPI_BYTE, from, tag, comm(communicator), &made);
  *request = packed_request(made);
  return status;
}

MpiArrival arrival_of(const MPI_Status& status) {
  MpiArrival arrival{.from = status.MPI_SOURCE};
  MPI_Get_count(&status, MPI_BYTE, &arrival.bytes);
  return arrival;
}

int test(MpiHandle* request, MpiArrival* arrival) {
  auto tested = unpack<MPI_Request>(*request, MPI_REQUEST_NULL);
  MPI_Status found;
  int is_complete = 0;
  const int status = MPI_Test(&tested, &is_complete, &found);
  if (status != MPI_SUCCESS || is_complete != 0) *request = 0;
  if (status == MPI_SUCCESS && is_complete != 0) *arrival = arrival_of(found);
  return status;
}

int probe(MpiHandle communicator, int tag, bool* has_arrived, MpiArrival* arrival) {
  MPI_Status found;
  int answer = 0;
  const int status = MPI_Iprobe(MPI_ANY_SOURCE, tag, comm(communicator), &answer, &found);
  *has_arrived = status == MPI_SUCCESS && answer != 0;
  if (*has_arrived) *arrival = arrival_of(found);
  return status;
}

int broadcast(MpiHandle communicator, void* data, int count, MpiHandle elements, int root) {
  return MPI_Bcast(data, count, type(elements), root, comm(communicator));
}

int all_gather(MpiHandle communicator, int mine, int* all) {
  return MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, comm(communicator));
}

int all_reduce(MpiHandle communicator, void* data, int count, MpiHandle elements,
               MpiHandle operation) {
  return MPI_Allreduce(MPI_IN_PLACE, data, count, type(elements), op(operation),
                       comm(communicator));
}

MPI_Datatype type_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return MPI_FLOAT;
    case ElementType::float64:
      return MPI_DOUBLE;
    case ElementType::uint8:
      return MPI_UINT8_T;
    case ElementType::int32:
      return MPI_INT32_T;
    case ElementType::int64:
      return MPI_INT64_T;
    case ElementType::float16:
    case ElementType::bfloat16:
      return MPI_DATATYPE_NULL;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op operation_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::product:
      return MPI_PROD;
  }
  return MPI_OP_NULL;
}

MpiHandle packed_type(ElementType element) {
  return pack<MPI_Datatype>(type_of(element), MPI_DATATYPE_NULL);
}
MpiHandle packed_operation(ReduceOp op) { return pack<MPI_Op>(operation_of(op), MPI_OP_NULL); }

MpiHandle create_type(int bytes) {
  MPI_Datatype made = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(bytes, MPI_BYTE, &made);
  MPI_Type_commit(&made);
  return pack<MPI_Datatype>(made, MPI_DATATYPE_NULL);
}

// The reduction gets a pointer to MPI's data type, which it does not read.
MpiHandle create_operation(MpiReduction* reduction) {
  constexpr int kCommutes = 1;
  MPI_Op made = MPI_OP_NULL;
  MPI_Op_create(reinterpret_cast<MPI_User_function*>(reduction), kCommutes, &made);
  return pack<MPI_Op>(made, MPI_OP_NULL);
}

void free_type(MpiHandle elements) {
  MPI_Datatype freed = type(elements);
  MPI_Type_free(&freed);
}

void free_operation(MpiHandle operation) {
  MPI_Op freed = op(operation);
  MPI_Op_free(&freed);
}

constexpr MpiFunctions kFunctions{.layout = kMpiLayout,
                                  .describe = describe,
                                  .describe_status = describe_status,
                                  .is_initialized = is_initialized,
                                  .is_finalized = is_finalized,
                                  .initialize = initialize,
                                  .allows_turns = allows_turns,
                                  .finalize = finalize,
                                  .abort = abort,
                                  .world = world,
                                  .from_fortran = from_fortran,
                                  .to_fortran = to_fortran,
                                  .is_between_groups = is_between_groups,
                                  .rank = rank,
                                  .size = size,
                                  .duplicate = duplicate,
                                  .split_by_node = split_by_node,
                                  .create_subset = create_subset,
                                  .return_errors = return_errors,
                                  .free_communicator = free_communicator,
                                  .send = send,
                                  .receive = receive,
                                  .test = test,
                                  .probe = probe,
                                  .broadcast = broadcast,
                                  .all_gather = all_gather,
                                  .all_reduce = all_reduce,
                                  .type = packed_type,
                                  .operation = packed_operation,
                                  .create_type = create_type,
                                  .create_operation = create_operation,
                                  .free_type = free_type,
                                  .free_operation = free_operation};

}  // namespace
}  // namespace lockstep::inline v0::allreduce

extern "C" [[gnu::visibility("default")]] const lockstep::allreduce::MpiFunctions*
lockstep_mpi_adapter() {
  return &lockstep::allreduce::kFunctions;
}
