#include "lockstep/allreduce/communicator.h"

#include <fmt/format.h>

#include <exception>
#include <type_traits>
#include <utility>

#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

template <Reducible T>
constexpr ElementType element_type() {
  if constexpr (std::is_same_v<T, float>) return ElementType::float32;
  if constexpr (std::is_same_v<T, double>) return ElementType::float64;
  if constexpr (std::is_same_v<T, Float16>) return ElementType::float16;
  if constexpr (std::is_same_v<T, BFloat16>) return ElementType::bfloat16;
  if constexpr (std::is_same_v<T, std::uint8_t>) return ElementType::uint8;
  if constexpr (std::is_same_v<T, std::int32_t>) return ElementType::int32;
  return ElementType::int64;
}

template <Reducible T>
Values erase(std::span<T> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size(), element_type<T>()};
}

}  // namespace

Request::Request(std::unique_ptr<PendingOperation> impl) : impl_(std::move(impl)) {}
Request::Request(Request&&) noexcept = default;

Request& Request::operator=(Request&& other) noexcept {
  Request finished(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}

Request::~Request() {
  if (!impl_) return;
  try {
    impl_->wait();
  } catch (const std::exception&) {
    // The next operation of the group throws the failure.
  }
}

void Request::wait() {
  if (!impl_) return;
  const std::unique_ptr<PendingOperation> operation = std::move(impl_);
  operation->wait();
}

void Request::wait(device::Stream& stream) {
  if (!impl_) return;
  const std::unique_ptr<PendingOperation> operation = std::move(impl_);
  operation->wait(stream);
}

bool Request::test() { return !impl_ || impl_->test(); }

Communicator::Communicator(std::shared_ptr<GroupMember> impl) : impl_(std::move(impl)) {}

Communicator Communicator::watched_by(std::shared_ptr<Activity> activity,
                                      std::vector<std::shared_ptr<Activity>> others) const {
  Communicator watched = *this;
  watched.activity_ = std::move(activity);
  watched.others_ = std::move(others);
  return watched;
}

Communicator Communicator::for_bucket(int bucket) const {
  Communicator labeled = *this;
  labeled.bucket_ = bucket;
  return labeled;
}

int Communicator::rank() const { return impl_->rank(); }
int Communicator::size() const { return impl_->size(); }
std::string Communicator::route() const { return impl_->route(); }
bool Communicator::overlaps() const { return impl_->overlaps(); }
bool Communicator::moves_on_host() const { return impl_->moves_on_host(); }
bool Communicator::can_be_recorded() const { return size() == 1 || impl_->can_be_recorded(); }
void Communicator::set_recording(bool on) const { impl_->set_recording(on); }
double Communicator::seconds_waited() const { return impl_->seconds_waited(); }
device::Buffer Communicator::allocate(std::size_t bytes) const { return impl_->allocate(bytes); }

template <Reducible T>
Request Communicator::all_reduce(std::span<T> values, ReduceOp op) const {
  const CollectiveScope scope(activity(), "all_reduce", bucket_, others_);
  return Request(impl_->all_reduce(erase(values), op));
}

template <Reducible T>
Request Communicator::all_reduce(std::span<T> values, ReduceOp op, device::Stream& stream) const {
  impl_->start_after(stream);
  return all_reduce(values, op);
}

template <Reducible T>
Slice Communicator::slice(std::size_t count, int rank) const {
  return slice_of(count, element_type<T>(), size(), rank);
}

template <Reducible T>
Request Communicator::reduce_scatter(std::span<T> values, ReduceOp op) const {
  const CollectiveScope scope(activity(), "reduce_scatter", bucket_, others_);
  return Request(impl_->reduce_scatter(erase(values), op));
}

template <Reducible T>
Request Communicator::reduce_scatter(std::span<T> values, ReduceOp op,
                                     device::Stream& stream) const {
  impl_->start_after(stream);
  return reduce_scatter(values, op);
}

template <Reducible T>
Request Communicator::all_gather(std::span<T> values) const {
  const CollectiveScope scope(activity(), "all_gather", bucket_, others_);
  return Request(impl_->gather_slices(erase(values)));
}

template <Reducible T>
Request Communicator::all_gather(std::span<T> values, device::Stream& stream) const {
  impl_->start_after(stream);
  return all_gather(values);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                 \
  template Request Communicator::all_reduce(std::span<T>, ReduceOp) const;                      \
  template Request Communicator::all_reduce(std::span<T>, ReduceOp, device::Stream&) const;     \
  template Slice Communicator::slice<T>(std::size_t, int) const;                                \
  template Request Communicator::reduce_scatter(std::span<T>, ReduceOp) const;                  \
  template Request Communicator::reduce_scatter(std::span<T>, ReduceOp, device::Stream&) const; \
  template Request Communicator::all_gather(std::span<T>) const;                                \
  template Request Communicator::all_gather(std::span<T>, device::Stream&) const;

LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(Float16)
LOCKSTEP_INSTANTIATE(BFloat16)
LOCKSTEP_INSTANTIATE(std::uint8_t)
LOCKSTEP_INSTANTIATE(std::int32_t)
LOCKSTEP_INSTANTIATE(std::int64_t)

void Communicator::broadcast(std::span<std::byte> values, int root) const {
  LOCKSTEP_CHECK_OP(root, >=, 0);
  LOCKSTEP_CHECK_OP(root, <, size());
  const CollectiveScope scope(activity(), "broadcast", bucket_, others_);
  impl_->broadcast(values, root);
}

std::vector<std::vector<std::byte>> Communicator::all_gather(
    std::span<const std::byte> mine) const {
  const CollectiveScope scope(activity(), "all_gather", bucket_, others_);
  return impl_->all_gather(mine);
}

std::vector<std::vector<std::byte>> Communicator::all_to_all(
    std::span<const std::span<const std::byte>> parts) const {
  LOCKSTEP_CHECK_OP(parts.size(), ==, static_cast<std::size_t>(size()));
  const CollectiveScope scope(activity(), "all_to_all", bucket_, others_);
  return impl_->all_to_all(parts);
}

void Communicator::barrier() const {
  const CollectiveScope scope(activity(), "barrier", bucket_, others_);
  impl_->barrier();
}

bool Communicator::any(bool mine) const {
  const CollectiveScope scope(activity(), "any", bucket_, others_);
  return impl_->any(mine);
}

void Communicator::throw_if_failed() const { impl_->throw_if_failed(); }

void Communicator::abort(const std::string& reason) const {
  impl_->fail({"all_reduce", fmt::format("expected all {} members of the group", size()),
               fmt::format("member {} left: {}", rank(), reason)});
}

}  // namespace lockstep::inline v0::allreduce
