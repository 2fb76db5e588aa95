#include "lockstep/allreduce/letters/point_to_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::inline v0::allreduce {
namespace {

void end(Letter& letter, std::optional<ErrorMessage> error = std::nullopt) {
  letter.error = std::move(error);
  letter.is_done = true;
}

}  // namespace

PointToPoint::~PointToPoint() {
  if (!outgoing_.empty()) static_cast<void>(new std::list<Outgoing>(std::move(outgoing_)));
}

void PointToPoint::add(std::shared_ptr<Letter> letter) {
  if (failure_) return end(*letter, failure_);
  if (!letter->is_sent) {
    const auto match = std::ranges::find_if(arrived_, [&](const Arrived& one) {
      return one.notice.tag == letter->tag &&
             (letter->member == kAnySource || letter->member == one.from);
    });
    if (match == arrived_.end()) return awaited_.push_back(std::move(letter));
    const Arrived arrived = std::move(*match);
    arrived_.erase(match);
    deliver(*letter, arrived);
    if (!letter->is_done) in_flight_.push_back(std::move(letter));
    return;
  }
  try {
    Notice notice{.tag = letter->tag, .bytes = letter->memory.size()};
    if (letter->memory.size() <= kShort) {
      notify(letter->member, notice, letter->memory);
      return end(*letter);
    }
    notice.kind = Kind::offer;
    notice.number = letter->number = ++next_number_;
    notify(letter->member, notice);
    offered_.push_back(std::move(letter));
  } catch (const Error& error) {
    end(*letter, error.message());
  }
}

bool PointToPoint::advance() {
  if (failure_) return false;  // the memory of letters is not ours any more
  bool has_moved = move_payloads();
  try {
    has_moved =
        std::erase_if(outgoing_, [&](Outgoing& one) { return transport_.poll(one.message); }) > 0 ||
        has_moved;
    while (const std::optional<Arrival> arrival = transport_.probe(Tag::call)) {
      std::vector<std::byte> bytes(arrival->bytes);
      Message message = transport_.receive(arrival->from, Tag::call, bytes);
      while (!transport_.poll(message)) continue;  // it has arrived
      take(arrival->from, bytes);
      has_moved = true;
    }
  } catch (const Error& error) {
    fail(error.message());
  }
  return has_moved;
}

bool PointToPoint::is_idle() const {
  return outgoing_.empty() && offered_.empty() && awaited_.empty() && in_flight_.empty();
}

void PointToPoint::fail(const ErrorMessage& failure) {
  if (!failure_) failure_ = failure;
  for (auto* letters : {&offered_, &awaited_, &in_flight_}) {
    for (const auto& letter : *letters) end(*letter, failure_);
    letters->clear();
  }
}

void PointToPoint::notify(int to, const Notice& notice, std::span<const std::byte> bytes) {
  Outgoing& one = outgoing_.emplace_back();
  one.bytes.resize(sizeof(notice) + bytes.size());
  std::memcpy(one.bytes.data(), &notice, sizeof(notice));
  std::ranges::copy(bytes, one.bytes.begin() + sizeof(notice));
  try {
    one.message = transport_.send(to, Tag::call, one.bytes);
  } catch (...) {
    outgoing_.pop_back();
    throw;
  }
}

void PointToPoint::take(int from, std::span<const std::byte> bytes) {
  Arrived arrived{.from = from, .notice = {}, .bytes = {}};
  const std::size_t header = sizeof(arrived.notice);
  if (bytes.size() >= header) std::memcpy(&arrived.notice, bytes.data(), header);
  const Notice& notice = arrived.notice;
  if (bytes.size() < header || notice.kind > Kind::refusal ||
      (notice.kind == Kind::whole && notice.bytes != bytes.size() - header))
    throw Error(ErrorCategory::communication, "receive",
                fmt::format("expected a letter of member {}", from),
                fmt::format("got {} bytes of something else", bytes.size()));
  if (notice.kind == Kind::ready || notice.kind == Kind::refusal) {
    const auto letter = take_offered(from, notice.number);
    if (!letter) return;
    if (notice.kind == Kind::refusal)
      return end(*letter, ErrorMessage{"send",
                                       fmt::format("expected member {} to receive {} bytes", from,
                                                   letter->memory.size()),
                                       fmt::format("it receives at most {}", notice.bytes)});
    letter->payload = transport_.send(from, Tag::values, letter->memory);
    return in_flight_.push_back(letter);
  }
  arrived.bytes.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  const auto match = std::ranges::find_if(awaited_, [&](const auto& letter) {
    return letter->tag == notice.tag && (letter->member == kAnySource || letter->member == from);
  });
  if (match == awaited_.end()) return arrived_.push_back(std::move(arrived));
  const std::shared_ptr<Letter> letter = *match;
  awaited_.erase(match);
  deliver(*letter, arrived);
  if (!letter->is_done) in_flight_.push_back(letter);
}

void PointToPoint::deliver(Letter& letter, const Arrived& arrived) {
  const Notice& notice = arrived.notice;
  letter.source = arrived.from;
  letter.bytes = notice.bytes;
  const bool fits = notice.bytes <= letter.memory.size();
  try {
    if (!fits && notice.kind == Kind::offer)
      notify(arrived.from,
             {.kind = Kind::refusal, .number = notice.number, .bytes = letter.memory.size()});
    if (!fits)
      return end(letter, ErrorMessage{"receive",
                                      fmt::format("expected at most {} bytes of member {}",
                                                  letter.memory.size(), arrived.from),
                                      fmt::format("it sent {}", notice.bytes)});
    if (notice.kind == Kind::whole) {
      std::ranges::copy(arrived.bytes, letter.memory.begin());
      return end(letter);
    }
    letter.payload =
        transport_.receive(arrived.from, Tag::values, letter.memory.first(notice.bytes));
    notify(arrived.from, {.kind = Kind::ready, .number = notice.number});
  } catch (const Error& error) {
    end(letter, error.message());
  }
}

bool PointToPoint::move_payloads() {
  return std::erase_if(in_flight_, [&](const auto& letter) {
           try {
             if (!transport_.poll(letter->payload)) return false;
             end(*letter);
           } catch (const Error& error) {
             end(*letter, error.message());
           }
           return true;
         }) > 0;
}

std::shared_ptr<Letter> PointToPoint::take_offered(int to, std::uint64_t number) {
  const auto found = std::ranges::find_if(offered_, [&](const auto& letter) {
    return letter->member == to && letter->number == number;
  });
  if (found == offered_.end()) return nullptr;
  std::shared_ptr<Letter> letter = *found;
  offered_.erase(found);
  return letter;
}

}  // namespace lockstep::inline v0::allreduce
