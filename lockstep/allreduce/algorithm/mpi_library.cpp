#include "lockstep/allreduce/algorithm/mpi_library.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>

#include "lockstep/allreduce/transport/mpi/mpi_loader.h"
#include "lockstep/allreduce/transport/mpi/mpi_transport.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr std::size_t kLargestPiece = std::size_t{1} << 30;  // elements; MPI counts in int

// MPI has no 16-bit floats. They are a type of two bytes with this reduction operation.
template <ElementType type, ReduceOp op>
void reduce_halves(void* from, void* into, int* count, void* /*type*/) {
  reduce_into(static_cast<std::byte*>(into), static_cast<const std::byte*>(from),
              static_cast<std::size_t>(*count), type, op);
}

// MPI types and operations, built-in and user-defined.
class MpiTypes {
 public:
  MpiTypes(const MpiFunctions& mpi, Turn& turn)
      : mpi_(mpi), turn_(turn), half_(mpi.create_type(2)) {
    create<ElementType::float16>(halves_[0]);
    create<ElementType::bfloat16>(halves_[1]);
  }
  MpiTypes(const MpiTypes&) = delete;
  MpiTypes& operator=(const MpiTypes&) = delete;
  ~MpiTypes() {
    if (mpi_.is_finalized()) return;
    // After a failure, another thread may be in MPI for ever.
    const std::unique_lock turn(turn_.mutex, std::chrono::seconds(1));
    if (!turn.owns_lock()) return;
    for (const auto& operations : halves_)
      for (const MpiHandle operation : operations) mpi_.free_operation(operation);
    mpi_.free_type(half_);
  }

  MpiHandle type(ElementType type) const {
    const MpiHandle built_in = mpi_.type(type);
    return built_in == 0 ? half_ : built_in;
  }

  MpiHandle operation(ElementType type, ReduceOp op) const {
    const auto index = static_cast<std::size_t>(op);
    if (type == ElementType::float16) return halves_[0][index];
    if (type == ElementType::bfloat16) return halves_[1][index];
    return mpi_.operation(op);
  }

 private:
  template <ElementType type>
  void create(std::array<MpiHandle, 4>& operations) const {
    operations[0] = mpi_.create_operation(reduce_halves<type, ReduceOp::sum>);
    operations[1] = mpi_.create_operation(reduce_halves<type, ReduceOp::max>);
    operations[2] = mpi_.create_operation(reduce_halves<type, ReduceOp::min>);
    operations[3] = mpi_.create_operation(reduce_halves<type, ReduceOp::product>);
  }

  const MpiFunctions& mpi_;
  Turn& turn_;
  MpiHandle half_;
  std::array<std::array<MpiHandle, 4>, 2> halves_{};
};

class MpiLibrary final : public MessageGroup {
 public:
  explicit MpiLibrary(std::shared_ptr<Transport> transport)
      : MessageGroup(transport, {.small_bytes = 0}),
        comm_(mpi_communicator(*transport)),
        types_(mpi_, transport->turn()) {}

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
        check(mpi_.broadcast(comm_, data, count, types_.type(values.type), root), "MPI_Bcast");
      });
    }
  }

 private:
  void reduce(const Values& values, ReduceOp op) {
    in_pieces(values, {0, values.count}, [&](std::byte* data, int count) {
      check(mpi_.all_reduce(comm_, data, count, types_.type(values.type),
                            types_.operation(values.type, op)),
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
    if (status == 0) return;
    raise({"mpi", fmt::format("expected {} to succeed on rank {}", call, rank()),
           fmt::format("MPI error {}", status)});
  }

  const MpiFunctions& mpi_ = loaded_mpi();
  MpiHandle comm_;
  MpiTypes types_;
};

}  // namespace

std::shared_ptr<MessageGroup> make_mpi_library(std::shared_ptr<Transport> transport) {
  return std::make_shared<MpiLibrary>(std::move(transport));
}

}  // namespace lockstep::inline v0::allreduce
