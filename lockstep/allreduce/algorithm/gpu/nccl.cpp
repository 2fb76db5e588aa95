#include "lockstep/allreduce/algorithm/gpu/nccl.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/allreduce/transport/gpu_member.h"
#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/allreduce/transport/nccl_communicators.h"
#include "lockstep/base/error.h"
#include "lockstep/device/cuda/stream.h"

namespace lockstep::inline v0::allreduce {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

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
    case ElementType::uint8:
      return ncclUint8;
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
    case ReduceOp::product:
      return ncclProd;
  }
  return ncclNumOps;
}

class Nccl final : public GpuMember {
 public:
  Nccl(std::shared_ptr<GroupMember> host, device::Device gpu,
       std::shared_ptr<NcclCommunicators> communicators, std::size_t participant)
      : GpuMember(std::move(host), gpu),
        communicators_(std::move(communicators)),
        participant_(participant) {}

  std::string route() const override { return "nccl"; }
  bool overlaps() const override { return true; }
  bool moves_on_host() const override { return false; }
  // In graphs, NCCL kernels on several GPUs of one process can deadlock.
  bool can_be_recorded() const override { return communicators_->has_one_member_per_process(); }

 protected:
  void arrive(const Call& call, std::byte* /*data*/) override {
    if (!records()) compare(call);
  }
  void check_progress() override { raise(communicators_->check(participant_)); }
  void stop(const ErrorMessage& /*failure*/) noexcept override { communicators_->abort(); }

  void enqueue_all_reduce(const Values& values, ReduceOp op) override {
    run_nccl("ncclAllReduce", [&](ncclComm_t comm) {
      return ncclAllReduce(values.data, values.data, values.count, nccl_type(values.type),
                           nccl_operation(op), comm, native());
    });
  }

  void enqueue_reduce_scatter(const Values& values, ReduceOp op) override {
    if (const std::size_t count = equal_slices(values); count > 0)
      reduce_scatter_equal(values, op, count);
    else
      reduce_each_slice(values, op);
  }

  void enqueue_gather_slices(const Values& values) override {
    if (const std::size_t count = equal_slices(values); count > 0)
      gather_equal(values, count);
    else
      broadcast_each_slice(values);
  }

  void enqueue_broadcast(std::span<std::byte> values, int root) override {
    run_nccl("ncclBroadcast", [&](ncclComm_t comm) {
      return ncclBroadcast(values.data(), values.data(), values.size(), ncclUint8, root, comm,
                           native());
    });
  }

 private:
  cudaStream_t native() { return device::cuda::native(stream()); }

  // Returns when NCCL has enqueued the work of `call` on its stream.
  void run_nccl(std::string_view what, const NcclCommunicators::Call& call) {
    raise(communicators_->run(participant_, what, call, [this] { poll_group(); }));
  }

  // If the communicator was aborted, the group has the original failure.
  void raise(const std::optional<ErrorMessage>& failure) {
    if (!failure) return;
    host().fail(*failure);
    host().throw_if_failed();
    throw Error(ErrorCategory::communication, *failure);
  }

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

  // Calls `operation` for all slices as one NCCL operation; stops at the first failure.
  template <typename Operation>
  ncclResult_t for_each_slice(const Values& values, Operation operation) {
    ncclResult_t result = ncclGroupStart();
    for (int member = 0; member < size() && is_fine(result); ++member) {
      const Slice slice = slice_of(values.count, values.type, size(), member);
      if (slice.begin == slice.end) continue;
      result = operation(member, at(values, member), slice.end - slice.begin);
    }
    const ncclResult_t end = ncclGroupEnd();
    return is_fine(result) ? end : result;
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

  std::shared_ptr<NcclCommunicators> communicators_;
  std::size_t participant_;
};

}  // namespace

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
    const Communicator& ranks, const NcclOptions& options) {
  LOCKSTEP_CHECK_OP(hosts.size(), ==, gpus.size());
  std::vector<NcclCommunicators::Participant> participants;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    participants.push_back({hosts[i]->rank(), gpus[i]});
  load_nccl(ranks);
  const auto communicators = NcclCommunicators::create(ranks, hosts.front()->size(), participants,
                                                       options.join_limit, options.end_limit);
  std::vector<std::shared_ptr<GpuMember>> group;
  std::optional<ErrorMessage> problem;
  try {
    for (std::size_t i = 0; i < hosts.size(); ++i)
      group.push_back(std::make_shared<Nccl>(hosts[i], gpus[i], communicators, i));
  } catch (const Error& error) {  // a GPU failed
    problem = error.message();
  }
  raise_first(ranks, problem, ErrorCategory::device);
  return connect_members(group);
}

}  // namespace lockstep::inline v0::allreduce
