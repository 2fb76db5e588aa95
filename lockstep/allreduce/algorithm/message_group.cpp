#include "lockstep/allreduce/algorithm/message_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "lockstep/allreduce/transport/backoff.h"

namespace lockstep::inline v0::allreduce {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Whether there are more members on this node than processors.
bool has_crowded_node(const Transport& transport) {
  int here = 0;
  for (int member = 0; member < transport.size(); ++member)
    here += transport.node_of(member) == transport.node_of(transport.rank()) ? 1 : 0;
  return here > ::sysconf(_SC_NPROCESSORS_ONLN);
}

}  // namespace

MessageGroup::MessageGroup(std::shared_ptr<Transport> transport, const RingOptions& options)
    : transport_(std::move(transport)),
      shares_cores_(transport_->sleep({}) && has_crowded_node(*transport_)),
      collective_(*transport_, options) {}

MessageGroup::~MessageGroup() {
  transport_->turn().run_left_if_free();
  transport_->turn().drop(this);
  if (failure()) transport_->abandon();
}

// The right to use the transport.
class MessageGroup::Use {
 public:
  explicit Use(MessageGroup& group) : turn_(group.transport_->turn()), lock_(turn_.mutex) {
    turn_.run_left();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    lock_.unlock();
    // A failure may have been left after the last check of this operation.
    turn_.run_left_if_free();
  }

 private:
  Turn& turn_;
  std::unique_lock<std::timed_mutex> lock_;
};

// One operation, which is complete unless an exception ends it.
class MessageGroup::Operation {
 public:
  explicit Operation(MessageGroup& group) : use_(group), collective_(group.collective_) {
    if (group.failure()) group.publish_failure(*group.failure());
    collective_.throw_if_failed();
    collective_.begin_operation();
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() {
    if (std::uncaught_exceptions() == exceptions_) collective_.complete_operation();
  }

 private:
  Use use_;
  Collective& collective_;
  int exceptions_ = std::uncaught_exceptions();
};

device::Buffer MessageGroup::allocate(std::size_t bytes) {
  return collective_.buffers().keep(GroupMember::allocate(bytes));
}

void MessageGroup::wait() {
  Backoff backoff(transport_.get(), shares_cores_);
  while (!collective_.is_done()) {
    if (collective_.advance(seconds_now())) backoff.restart();
    if (backoff.pause()) receive_failure();
  }
}

void MessageGroup::tell_others(const ErrorMessage& failure) {
  collective_.broadcast_failure(failure);
  publish_failure(*collective_.failure());
}

void MessageGroup::raise(const ErrorMessage& failure) {
  tell_others(failure);
  throw Error(ErrorCategory::communication, *collective_.failure());
}

void MessageGroup::fail(const ErrorMessage& failure) {
  transport_->turn().leave(this, [this, failure] { tell_others(failure); });
}

void MessageGroup::receive_failure() {
  transport_->turn().run_left();
  try {
    collective_.check_others();
  } catch (const Error&) {
    if (failure()) publish_failure(*failure());
    throw;
  }
}

void MessageGroup::throw_if_failed() {
  const Use use(*this);
  receive_failure();
}

const std::vector<Call>& MessageGroup::compare(const Call& call) {
  run([&] { collective_.start(call, seconds_now()); });
  return collective_.calls();
}

void MessageGroup::run_all_reduce(const Values& values, ReduceOp op) {
  run([&] { collective_.start_all_reduce(values, op, seconds_now()); });
}

void MessageGroup::run_reduce_scatter(const Values& values, ReduceOp op) {
  run([&] { collective_.start_reduce_scatter(values, op, seconds_now()); });
}

void MessageGroup::run_gather_slices(const Values& values) {
  run([&] { collective_.start_gather_slices(values, seconds_now()); });
}

std::unique_ptr<PendingOperation> MessageGroup::all_reduce(const Values& values, ReduceOp op) {
  const Operation operation(*this);
  if (collective_.is_small(values))
    MessageGroup::run_all_reduce(values, op);
  else
    run_all_reduce(values, op);
  return nullptr;
}

std::unique_ptr<PendingOperation> MessageGroup::reduce_scatter(const Values& values, ReduceOp op) {
  const Operation operation(*this);
  run_reduce_scatter(values, op);
  return nullptr;
}

std::unique_ptr<PendingOperation> MessageGroup::gather_slices(const Values& values) {
  const Operation operation(*this);
  run_gather_slices(values);
  return nullptr;
}

void MessageGroup::broadcast(std::span<std::byte> values, int root) {
  const Operation operation(*this);
  compare(Call::broadcast(values.size(), root));
  run([&] { collective_.start_broadcast(values, root); });
}

std::vector<std::vector<std::byte>> MessageGroup::all_gather(std::span<const std::byte> mine) {
  const Operation operation(*this);
  const std::vector<Call>& calls = compare(Call::all_gather(mine.size()));
  run([&] { collective_.start_all_gather(mine, calls); });
  return collective_.take_received();
}

std::vector<std::vector<std::byte>> MessageGroup::all_to_all(
    std::span<const std::span<const std::byte>> parts) {
  const Operation operation(*this);
  std::size_t total = 0;
  for (const auto& part : parts) total += part.size();
  compare(Call::all_to_all(total));
  run([&] { collective_.start_all_to_all(parts); });
  return collective_.take_received();
}

void MessageGroup::barrier() {
  const Operation operation(*this);
  compare(Call::barrier());
}

bool MessageGroup::any(bool mine) {
  const Operation operation(*this);
  return std::ranges::any_of(compare(Call::any(mine)), [](const Call& call) { return call.flag; });
}

std::shared_ptr<MessageGroup> make_ring(std::shared_ptr<Transport> transport,
                                        const RingOptions& options) {
  return std::make_shared<MessageGroup>(std::move(transport), options);
}

}  // namespace lockstep::inline v0::allreduce
