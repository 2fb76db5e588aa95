#include "tests/support/pretend_nccl.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/support/pretend_collective.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/streams.h"
#include "tests/support/pretend_gpu.h"

namespace {

using lockstep::SharedSegment;
using lockstep::pretend::Collective;
using lockstep::pretend::usage_error;
using lockstep::pretend::width_of;
namespace pretend = lockstep::pretend;

struct Faults {
  std::mutex mutex;
  std::map<int, ncclResult_t> answers;
  std::map<int, ncclResult_t> broken;
  std::set<int> lost;
  std::set<int> hanging;
  bool library_is_lost = false;
};

Faults& faults() {
  static Faults faults;
  return faults;
}

std::atomic<int> aborts{0};  // in progress

}  // namespace

struct ncclComm {
  ncclComm(SharedSegment segment, int rank, int size) : place(std::move(segment), rank, size) {}

  pretend::SharedCollective place;
  std::atomic<bool> finalized{false};
  std::atomic<int> inside{0};
  int polls = 0;  // polls of its state until pending work completes
  std::vector<std::pair<cudaStream_t, Collective>> pending;
};

namespace {

std::mutex communicators_mutex;
std::map<ncclComm_t, std::shared_ptr<ncclComm>> communicators;

std::shared_ptr<ncclComm> find(ncclComm_t comm) {
  const std::lock_guard lock(communicators_mutex);
  const auto found = communicators.find(comm);
  if (found == communicators.end()) usage_error("a communicator that is gone");
  return found->second;
}

// A call of NCCL on a communicator. Only one thread may be inside.
class Inside {
 public:
  explicit Inside(ncclComm_t comm) : comm_(find(comm)) {
    if (comm_->inside.fetch_add(1) != 0) usage_error("two threads inside one communicator");
  }
  ~Inside() { comm_->inside.fetch_sub(1); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ncclComm& operator*() const { return *comm_; }
  ncclComm* operator->() const { return comm_.get(); }
  const std::shared_ptr<ncclComm>& shared() const { return comm_; }

 private:
  std::shared_ptr<ncclComm> comm_;
};

// Collectives of the open group of a thread.
thread_local int group_depth = 0;
thread_local std::vector<std::function<void()>> group;

// Enqueues later: NCCL may return before a collective is on the stream.
ncclResult_t submit(ncclComm_t handle, const Collective& collective, cudaStream_t stream) {
  const Inside comm(handle);
  if (comm->place.is_aborted()) return ncclInvalidUsage;
  const int rank = comm->place.rank();
  {
    const std::lock_guard lock(faults().mutex);
    const auto answer = faults().answers.extract(rank);
    if (!answer.empty()) return answer.mapped();
    if (faults().lost.contains(rank)) return ncclSuccess;
  }
  if (collective.count == 0) return ncclSuccess;
  const auto pend = [shared = comm.shared(), stream, collective] {
    shared->pending.emplace_back(stream, collective);
    shared->polls = 2;
  };
  if (group_depth > 0) {
    group.emplace_back(pend);
    return ncclSuccess;
  }
  pend();
  return ncclInProgress;
}

ncclResult_t state_of(const Inside& comm) {
  {
    const std::lock_guard lock(faults().mutex);
    const auto broken = faults().broken.find(comm->place.rank());
    if (broken != faults().broken.end()) return broken->second;
  }
  if (!comm->place.all_have_joined()) return ncclInProgress;
  if (comm->place.share_a_gpu()) return ncclInvalidUsage;
  if (comm->polls > 0 && --comm->polls > 0) return ncclInProgress;
  for (const auto& [stream, collective] : comm->pending)
    static_cast<void>(pretend::enqueue(
        stream, [shared = comm.shared(), collective] { shared->place.perform(collective); }));
  comm->pending.clear();
  return ncclSuccess;
}

bool hangs(int rank) {
  const std::lock_guard lock(faults().mutex);
  return faults().hanging.contains(rank);
}

Collective part(Collective collective, const void* send, void* receive, int root) {
  collective.send = static_cast<const std::byte*>(send);
  collective.receive = static_cast<std::byte*>(receive);
  collective.root = root;
  return collective;
}

}  // namespace

namespace lockstep::inline v0::pretend {

void answer_next_call(int rank, ncclResult_t result) {
  const std::lock_guard lock(faults().mutex);
  faults().answers[rank] = result;
}
void break_communicators(int rank, ncclResult_t result) {
  const std::lock_guard lock(faults().mutex);
  faults().broken[rank] = result;
}
void lose_operations(int rank) {
  const std::lock_guard lock(faults().mutex);
  faults().lost.insert(rank);
}
void hang_aborts(int rank) {
  const std::lock_guard lock(faults().mutex);
  faults().hanging.insert(rank);
}
void lose_library() {
  const std::lock_guard lock(faults().mutex);
  faults().library_is_lost = true;
}
void reset_faults() {
  const std::lock_guard lock(faults().mutex);
  faults().answers.clear();
  faults().broken.clear();
  faults().lost.clear();
  faults().hanging.clear();
  faults().library_is_lost = false;
}

int unfinished_aborts() { return aborts; }

}  // namespace lockstep::inline v0::pretend

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  if (result == ncclInvalidUsage) return "invalid usage";
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "unhandled system error";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) { return "a pretended one"; }

ncclResult_t ncclGetVersion(int* version) {
  const std::lock_guard lock(faults().mutex);
  if (faults().library_is_lost)
    throw lockstep::Error(lockstep::ErrorCategory::device, "NCCL", "expected a library",
                          "it is lost");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::mutex mutex;
  static std::vector<SharedSegment> segments;  // until all members have mapped them
  const std::lock_guard lock(mutex);
  segments.push_back(pretend::SharedCollective::create());
  const SharedSegment::Handle handle = segments.back().handle();
  std::memcpy(id->internal, &handle, sizeof(handle));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) usage_error("a communicator that blocks");
  SharedSegment::Handle found;
  std::memcpy(&found, id.internal, sizeof(found));
  const auto comm = std::make_shared<ncclComm>(SharedSegment::open(found), rank, size);
  comm->place.join(pretend::current_gpu());
  *handle = comm.get();
  const std::lock_guard lock(communicators_mutex);
  communicators[comm.get()] = comm;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  const Inside comm(handle);
  *state = state_of(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const Inside comm(handle);
  comm->finalized = true;
  comm->polls = 2;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  const Inside comm(handle);
  if (!comm->finalized) usage_error("a communicator was destroyed that nobody finalized");
  const std::lock_guard lock(communicators_mutex);
  communicators.erase(handle);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  ++aborts;
  {
    const Inside comm(handle);
    comm->place.abort();
    while (hangs(comm->place.rank())) std::this_thread::yield();
    const std::lock_guard lock(communicators_mutex);
    communicators.erase(handle);
  }
  --aborts;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  for (const auto& pend : group) pend();
  group.clear();
  return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm,
                part({.kind = Collective::all_reduce, .count = count, .type = type, .op = op}, send,
                     receive, 0),
                stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm,
                part({.kind = Collective::reduce, .count = count, .type = type, .op = op}, send,
                     receive, root),
                stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return submit(
      comm,
      part({.kind = Collective::broadcast, .count = count, .type = type}, send, receive, root),
      stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ncclGroupStart();
  ncclResult_t result = ncclSuccess;
  const int size = find(comm)->place.size();
  for (int rank = 0; rank < size && result == ncclSuccess; ++rank)
    result = ncclReduce(static_cast<const std::byte*>(send) +
                            static_cast<std::size_t>(rank) * count * width_of(type),
                        receive, count, type, op, rank, comm, stream);
  const ncclResult_t end = ncclGroupEnd();
  return result == ncclSuccess ? end : result;
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  ncclGroupStart();
  ncclResult_t result = ncclSuccess;
  const int size = find(comm)->place.size();
  for (int rank = 0; rank < size && result == ncclSuccess; ++rank)
    result = ncclBroadcast(
        send,
        static_cast<std::byte*>(receive) + static_cast<std::size_t>(rank) * count * width_of(type),
        count, type, rank, comm, stream);
  const ncclResult_t end = ncclGroupEnd();
  return result == ncclSuccess ? end : result;
}

}  // extern "C"
