#include "lockstep/allreduce/algorithm/mpi_library.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>

#include "lockstep/allreduce/transport/mpi_transport.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr std::size_t kLargestPiece = std::size_t{1} << 30;  // elements; MPI counts in int

// MPI has no 16-bit floats. They are a type of two bytes with this reduction operation.
template <ElementType type, ReduceOp op>
void reduce_halves(void* from, void* into, int* count, MPI_Datatype* /*datatype*/) {
  reduce_into(static_cast<std::byte*>(into), static_cast<const std::byte*>(from),
              static_cast<std::size_t>(*count), type, op);
}

// MPI types and operations, built-in and user-defined.
class MpiTypes {
 public:
  explicit MpiTypes(Turn& turn) : turn_(turn) {
    MPI_Type_contiguous(2, MPI_BYTE, &half_);
    MPI_Type_commit(&half_);
    create<ElementType::float16>(halves_[0]);
    create<ElementType::bfloat16>(halves_[1]);
  }
  MpiTypes(const MpiTypes&) = delete;
  MpiTypes& operator=(const MpiTypes&) = delete;
  ~MpiTypes() {
    int over = 0;
    MPI_Finalized(&over);
    if (over != 0) return;
    // After a failure, another thread may be in MPI for ever.
    const std::unique_lock turn(turn_.mutex, std::chrono::seconds(1));
    if (!turn.owns_lock()) return;
    for (auto& operations : halves_)
      for (MPI_Op& operation : operations) MPI_Op_free(&operation);
    MPI_Type_free(&half_);
  }

  MPI_Datatype type(ElementType type) const {
    switch (type) {
      case ElementType::float32:
        return MPI_FLOAT;
      case ElementType::float64:
        return MPI_DOUBLE;
      case ElementType::float16:
      case ElementType::bfloat16:
        return half_;
      case ElementType::uint8:
        return MPI_UINT8_T;
      case ElementType::int32:
        return MPI_INT32_T;
      case ElementType::int64:
        return MPI_INT64_T;
    }
    return MPI_DATATYPE_NULL;
  }

  MPI_Op operation(ElementType type, ReduceOp op) const {
    const auto index = static_cast<std::size_t>(op);
    if (type == ElementType::float16) return halves_[0][index];
    if (type == ElementType::bfloat16) return halves_[1][index];
    return std::array{MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD}[index];
  }

 private:
  template <ElementType type>
  static void create(std::array<MPI_Op, 4>& operations) {
    constexpr int kCommutes = 1;
    MPI_Op_create(reduce_halves<type, ReduceOp::sum>, kCommutes, &operations[0]);
    MPI_Op_create(reduce_halves<type, ReduceOp::max>, kCommutes, &operations[1]);
    MPI_Op_create(reduce_halves<type, ReduceOp::min>, kCommutes, &operations[2]);
    MPI_Op_create(reduce_halves<type, ReduceOp::product>, kCommutes, &operations[3]);
  }

  Turn& turn_;
  MPI_Datatype half_ = MPI_DATATYPE_NULL;
  std::array<std::array<MPI_Op, 4>, 2> halves_{};
};

class MpiLibrary final : public MessageGroup {
 public:
  explicit MpiLibrary(std::shared_ptr<Transport> transport)
      : MessageGroup(transport, {.small_bytes = 0}),
        comm_(mpi_communicator(*transport)),
        types_(transport->turn()) {}

  std::string route() const override { return "mpi"; }

 protected:
  void run_all_reduce(const Values& values, ReduceOp op) override {
    compare(Call::all_reduce(values, op));
    reduce(values, op);
  }

  void run_reduce_scatter(const Values& values, ReduceOp op) override {
    compare(Call::reduce_scatter(values, op));
    reduce(values, op);
  }

  void run_gather_slices(const Values& values) override {
    compare(Call::gather_slices(values));
    for (int root = 0; root < size(); ++root) {
      const Slice slice = slice_of(values.count, values.type, size(), root);
      in_pieces(values, slice, [&](std::byte* data, int count) {
        check(MPI_Bcast(data, count, types_.type(values.type), root, comm_), "MPI_Bcast");
      });
    }
  }

 private:
  void reduce(const Values& values, ReduceOp op) {
    in_pieces(values, {0, values.count}, [&](std::byte* data, int count) {
      check(MPI_Allreduce(MPI_IN_PLACE, data, count, types_.type(values.type),
                          types_.operation(values.type, op), comm_),
            "MPI_Allreduce");
    });
  }

  template <typename Operation>
  static void in_pieces(const Values& values, Slice slice, Operation operation) {
    for (std::size_t begin = slice.begin; begin < slice.end; begin += kLargestPiece)
      operation(values.data + begin * bytes_per_element(values.type),
                static_cast<int>(std::min(kLargestPiece, slice.end - begin)));
  }

  void check(int status, const char* call) {
    if (status == MPI_SUCCESS) return;
    raise({"mpi", fmt::format("expected {} to succeed on rank {}", call, rank()),
           fmt::format("MPI error {}", status)});
  }

  MPI_Comm comm_;
  MpiTypes types_;
};

}  // namespace

std::shared_ptr<MessageGroup> make_mpi_library(std::shared_ptr<Transport> transport) {
  return std::make_shared<MpiLibrary>(std::move(transport));
}

}  // namespace lockstep::inline v0::allreduce
