#include "allreduce/routes/mpi_library.h"

#include <algorithm>

namespace lockstep::allreduce {
namespace {

constexpr std::size_t kLargestPiece = std::size_t{1} << 30;  // elements; MPI counts in int

MPI_Datatype mpi_type(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return MPI_FLOAT;
    case ElementType::float64:
      return MPI_DOUBLE;
    case ElementType::int32:
      return MPI_INT32_T;
    case ElementType::int64:
      return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
  }
  return MPI_OP_NULL;
}

class MpiLibrary final : public MpiGroup {
 public:
  using MpiGroup::MpiGroup;

  std::string route() const override { return "mpi"; }

  std::unique_ptr<Request::Impl> all_reduce(const Values& values, ReduceOp op) override {
    announce(Call::all_reduce(values, op));
    agree();
    for (std::size_t begin = 0; begin < values.count; begin += kLargestPiece) {
      const int count = static_cast<int>(std::min(kLargestPiece, values.count - begin));
      std::byte* data = values.data + begin * bytes_per_element(values.type);
      check(MPI_Allreduce(MPI_IN_PLACE, data, count, mpi_type(values.type), mpi_op(op), comm()), "MPI_Allreduce");
    }
    return nullptr;
  }
};

}  // namespace

std::shared_ptr<MpiGroup> make_mpi_library(MPI_Comm ranks) { return std::make_shared<MpiLibrary>(ranks); }

}  // namespace lockstep::allreduce
