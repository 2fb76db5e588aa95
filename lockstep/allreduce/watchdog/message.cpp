#include "lockstep/allreduce/watchdog/message.h"

#include <cstring>
#include <type_traits>
#include <utility>

namespace lockstep::inline v0::allreduce {
namespace {

class Writer {
 public:
  template <typename T>
  Writer& value(const T& value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Writer& text(std::string_view text) {
    value(static_cast<std::uint32_t>(text.size()));
    text_.append(text);
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// Reads values in the order of writing. After a missing value all later values are empty and
/// whole() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T value() {
    T value{};
    if (rest_.size() < sizeof(T)) {
      failed_ = true;
      rest_ = {};
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  std::string text() {
    const auto size = value<std::uint32_t>();
    if (rest_.size() < size) {
      failed_ = true;
      rest_ = {};
      return "";
    }
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  bool failed() const { return failed_; }
  /// Whether no value was missing and all bytes were read.
  bool whole() const { return !failed_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

void write_replica(Writer& out, const ReplicaView& view) {
  const ActivityState& state = view.state;
  out.value(state.step)
      .value(state.phase)
      .value(state.entered)
      .value(state.left)
      .text(state.operation);
  out.value(state.bucket)
      .value(state.changes)
      .value(view.still_seconds)
      .value(view.unreported_seconds)
      .value(view.collective_seconds);
  out.value(view.group.number).value(static_cast<std::uint32_t>(view.group.members.size()));
  for (const std::int32_t member : view.group.members) out.value(member);
}

ReplicaView read_replica(Reader& in) {
  ReplicaView view;
  view.state.step = in.value<std::int64_t>();
  view.state.phase = in.value<Phase>();
  view.state.entered = in.value<std::uint64_t>();
  view.state.left = in.value<std::uint64_t>();
  view.state.operation = in.text();
  view.state.bucket = in.value<std::int32_t>();
  view.state.changes = in.value<std::uint64_t>();
  view.still_seconds = in.value<double>();
  view.unreported_seconds = in.value<double>();
  view.collective_seconds = in.value<double>();
  view.group.number = in.value<std::uint32_t>();
  for (auto count = in.value<std::uint32_t>(); count > 0 && !in.failed(); --count)
    view.group.members.push_back(in.value<std::int32_t>());
  return view;
}

}  // namespace

std::string write_hello(const Hello& hello) {
  return Writer().value(hello.rank).text(hello.host).take();
}

std::optional<Hello> read_hello(std::string_view body) {
  Reader in(body);
  Hello hello;
  hello.rank = in.value<std::int32_t>();
  hello.host = in.text();
  return in.whole() ? std::optional(std::move(hello)) : std::nullopt;
}

std::string write_beat(std::span<const ReplicaView> replicas) {
  Writer out;
  out.value(static_cast<std::uint32_t>(replicas.size()));
  for (const ReplicaView& view : replicas) write_replica(out, view);
  return out.take();
}

std::optional<std::vector<ReplicaView>> read_beat(std::string_view body) {
  Reader in(body);
  std::vector<ReplicaView> replicas;
  for (auto count = in.value<std::uint32_t>(); count > 0 && !in.failed(); --count)
    replicas.push_back(read_replica(in));
  return in.whole() ? std::optional(std::move(replicas)) : std::nullopt;
}

std::string write_goodbye(bool after_error) { return after_error ? "e" : ""; }
bool read_goodbye(std::string_view body) { return !body.empty(); }

std::string write_invitation(const Invitation& invitation) {
  Writer out;
  out.text(invitation.secret).text(invitation.host);
  out.value(invitation.stall_timeout).value(invitation.heartbeat);
  out.value(static_cast<std::uint32_t>(invitation.endpoints.size()));
  for (const net::Endpoint& endpoint : invitation.endpoints)
    out.text(endpoint.address).value(endpoint.port);
  return out.take();
}

std::optional<Invitation> read_invitation(std::string_view body) {
  Reader in(body);
  Invitation invitation;
  invitation.secret = in.text();
  invitation.host = in.text();
  invitation.stall_timeout = in.value<double>();
  invitation.heartbeat = in.value<double>();
  for (auto count = in.value<std::uint32_t>(); count > 0 && !in.failed(); --count) {
    net::Endpoint endpoint{.address = in.text()};
    endpoint.port = in.value<std::uint16_t>();
    invitation.endpoints.push_back(std::move(endpoint));
  }
  return in.whole() ? std::optional(std::move(invitation)) : std::nullopt;
}

}  // namespace lockstep::inline v0::allreduce
