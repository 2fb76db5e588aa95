#include "allreduce/communicator.h"

#include <exception>
#include <type_traits>
#include <utility>

#include "allreduce/communicator_impl.h"
#include "device/error.h"

namespace lockstep::allreduce {
namespace {

template <Reducible T>
constexpr ElementType element_type() {
  if constexpr (std::is_same_v<T, float>) return ElementType::float32;
  if constexpr (std::is_same_v<T, double>) return ElementType::float64;
  if constexpr (std::is_same_v<T, std::int32_t>) return ElementType::int32;
  return ElementType::int64;
}

}  // namespace

Request::Request(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
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
    // The failure belongs to the group: its next operation throws it where it can be handled.
  }
}

void Request::wait() {
  if (!impl_) return;
  const std::unique_ptr<Impl> operation = std::move(impl_);
  operation->wait();
}

bool Request::test() { return !impl_ || impl_->test(); }

device::Buffer Communicator::Impl::allocate(std::size_t bytes) { return device::HostAllocator().allocate(bytes); }

Communicator::Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

int Communicator::rank() const { return impl_->rank(); }
int Communicator::size() const { return impl_->size(); }
std::string Communicator::route() const { return impl_->route(); }
device::Buffer Communicator::allocate(std::size_t bytes) const { return impl_->allocate(bytes); }

template <Reducible T>
Request Communicator::all_reduce(std::span<T> values, ReduceOp op) const {
  return Request(
      impl_->all_reduce({reinterpret_cast<std::byte*>(values.data()), values.size(), element_type<T>()}, op));
}

template Request Communicator::all_reduce(std::span<float>, ReduceOp) const;
template Request Communicator::all_reduce(std::span<double>, ReduceOp) const;
template Request Communicator::all_reduce(std::span<std::int32_t>, ReduceOp) const;
template Request Communicator::all_reduce(std::span<std::int64_t>, ReduceOp) const;

void Communicator::broadcast(std::span<std::byte> values, int root) const {
  LOCKSTEP_CHECK_OP(root, >=, 0);
  LOCKSTEP_CHECK_OP(root, <, size());
  impl_->broadcast(values, root);
}

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> mine) const {
  return impl_->all_gather(mine);
}

void Communicator::barrier() const { impl_->barrier(); }
bool Communicator::any(bool mine) const { return impl_->any(mine); }

void Communicator::abort(const std::string& reason) const {
  impl_->fail({"all_reduce", fmt::format("needed all {} members of the group", size()),
               fmt::format("member {} left: {}", rank(), reason)});
}

}  // namespace lockstep::allreduce
