#include "lockstep/allreduce/algorithm/gpu/nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/allreduce/algorithm/gpu/nccl_member.h"
#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/base/error.h"
#include "lockstep/device/cuda/stream.h"
#include "lockstep/device/gpu.h"

namespace lockstep::allreduce {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

class Nccl final : public NcclMember {
 public:
  using NcclMember::NcclMember;

  std::string route() const override { return "nccl"; }
  // In graphs, NCCL kernels on several GPUs of one process can deadlock.
  bool can_be_recorded() const override { return communicators().serves_one_each(); }

  device::Buffer allocate(std::size_t bytes) override {
    return communicators().allocate(participant(), bytes, stream(), [this] { poll_group(); });
  }

 protected:
  // Members also compare whether, and at which offset, their values are in registered memory.
  void come(const Call& call, std::byte* data) override {
    Call told = call;
    told.flag = communicators().place_of(participant(), data);
    if (!records()) same_place_[data] = compare(told);
    const auto agreed = same_place_.find(data);
    LOCKSTEP_CHECK(agreed != same_place_.end());
    is_bounced_ = !agreed->second && told.flag != 0;
  }

  void enqueue_all_reduce(const Values& values, ReduceOp op) override {
    with_agreed_memory(values.data, bytes_of(values), [&](std::byte* data) {
      run_nccl("ncclAllReduce", [&](ncclComm_t comm) {
        return ncclAllReduce(data, data, values.count, nccl_type(values.type), nccl_operation(op),
                             comm, native());
      });
    });
  }

  void enqueue_reduce_scatter(const Values& values, ReduceOp op) override {
    with_agreed_memory(values.data, bytes_of(values), [&](std::byte* data) {
      const Values agreed{data, values.count, values.type};
      if (const std::size_t count = equal_slices(values); count > 0)
        reduce_scatter_equal(agreed, op, count);
      else
        reduce_each_slice(agreed, op);
    });
  }

  void enqueue_gather_slices(const Values& values) override {
    with_agreed_memory(values.data, bytes_of(values), [&](std::byte* data) {
      const Values agreed{data, values.count, values.type};
      if (const std::size_t count = equal_slices(values); count > 0)
        gather_equal(agreed, count);
      else
        broadcast_each_slice(agreed);
    });
  }

  void enqueue_broadcast(std::span<std::byte> values, int root) override {
    with_agreed_memory(values.data(), values.size(), [&](std::byte* data) {
      run_nccl("ncclBroadcast", [&](ncclComm_t comm) {
        return ncclBroadcast(data, data, values.size(), ncclUint8, root, comm, native());
      });
    });
  }

 private:
  cudaStream_t native() { return device::cuda::native(stream()); }

  std::byte* at(const Values& values, int member) const {
    return values.data + slice_of(values.count, values.type, size(), member).begin *
                             bytes_per_element(values.type);
  }

  // The number of elements per slice if it is the same for all, else 0. For equal slices, as with
  // most sizes, one NCCL operation suffices. Otherwise there is one operation per slice, which
  // moves no more bytes.
  std::size_t equal_slices(const Values& values) const {
    const std::size_t count = values.count / static_cast<std::size_t>(size());
    for (int member = 0; member < size(); ++member) {
      const Slice slice = slice_of(values.count, values.type, size(), member);
      if (slice.end - slice.begin != count) return 0;
    }
    return count;
  }

  void reduce_scatter_equal(const Values& values, ReduceOp op, std::size_t count) {
    run_nccl("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(values.data, at(values, rank()), count, nccl_type(values.type),
                               nccl_operation(op), comm, native());
    });
  }

  void gather_equal(const Values& values, std::size_t count) {
    run_nccl("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(at(values, rank()), values.data, count, nccl_type(values.type), comm,
                           native());
    });
  }

  template <typename Operation>
  ncclResult_t for_each_slice(const Values& values, Operation operation) {
    return as_one_nccl_operation(size(), [&](int member) {
      const Slice slice = slice_of(values.count, values.type, size(), member);
      if (slice.begin == slice.end) return ncclSuccess;
      return operation(member, at(values, member), slice.end - slice.begin);
    });
  }

  void reduce_each_slice(const Values& values, ReduceOp op) {
    run_nccl("ncclReduce", [&](ncclComm_t comm) {
      return for_each_slice(values, [&](int member, std::byte* data, std::size_t count) {
        return ncclReduce(data, data, count, nccl_type(values.type), nccl_operation(op), member,
                          comm, native());
      });
    });
  }

  void broadcast_each_slice(const Values& values) {
    run_nccl("ncclBroadcast", [&](ncclComm_t comm) {
      return for_each_slice(values, [&](int member, std::byte* data, std::size_t count) {
        return ncclBroadcast(data, data, count, nccl_type(values.type), member, comm, native());
      });
    });
  }

  // An operation must not mix registered memory with other memory, or registered memory at
  // different offsets.
  template <typename Operation>
  void with_agreed_memory(std::byte* data, std::size_t bytes, Operation operation) {
    if (!is_bounced_) return operation(data);
    if (bounce_.size() < bytes) bounce_ = device::make_gpu_allocator(gpu().index)->allocate(bytes);
    auto* bounce = static_cast<std::byte*>(bounce_.data());
    gpu::copy(data, bounce, bytes, stream());
    operation(bounce);
    gpu::copy(bounce, data, bytes, stream());
  }

  bool is_bounced_ = false;  // whether this member uses `bounce_` in this operation
  // By address of the values: whether all members had the same place in the last operation with
  // them.
  std::map<const std::byte*, bool> same_place_;
  device::Buffer bounce_;
};

}  // namespace

ncclDataType_t nccl_type(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return ncclFloat32;
    case ElementType::float64:
      return ncclFloat64;
    case ElementType::float16:
      return ncclFloat16;
    case ElementType::bfloat16:
      return ncclBfloat16;
    case ElementType::int32:
      return ncclInt32;
    case ElementType::int64:
      return ncclInt64;
  }
  return ncclNumTypes;
}

// ncclAvg is not used because it rounds 1/n to the element type.
ncclRedOp_t nccl_operation(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
  }
  return ncclNumOps;
}

ncclResult_t as_one_nccl_operation(int count, const std::function<ncclResult_t(int)>& each) {
  ncclResult_t result = ncclGroupStart();
  const auto is_fine = [](ncclResult_t status) {
    return status == ncclSuccess || status == ncclInProgress;
  };
  for (int index = 0; index < count && is_fine(result); ++index) result = each(index);
  const ncclResult_t end = ncclGroupEnd();
  return is_fine(result) ? end : result;
}

std::string nccl_built_version() { return version_text(NCCL_VERSION_CODE); }

std::string nccl_loaded_version() {
  int version = 0;
  try {
    if (ncclGetVersion(&version) == ncclSuccess) return version_text(version);
  } catch (const Error&) {  // the library is missing
  }
  return "absent";
}

std::vector<std::shared_ptr<GroupMember>> make_nccl(
    const std::vector<std::shared_ptr<GroupMember>>& hosts, const std::vector<device::Device>& gpus,
    MPI_Comm ranks, const NcclOptions& options) {
  LOCKSTEP_CHECK_OP(hosts.size(), ==, gpus.size());
  std::vector<NcclCommunicators::Participant> participants;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    participants.push_back({hosts[i]->rank(), gpus[i], hosts[i]->rank()});
  load_nccl(ranks);
  const auto communicators =
      NcclCommunicators::create(ranks, hosts.front()->size(), participants, options.join_limit);
  std::vector<std::shared_ptr<GpuMember>> group;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    group.push_back(std::make_shared<Nccl>(hosts[i], gpus[i], communicators, i));
  return connected(group);
}

}  // namespace lockstep::allreduce
