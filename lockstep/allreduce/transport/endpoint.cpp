#include "lockstep/allreduce/transport/endpoint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace lockstep::inline v0::allreduce {
namespace {

constexpr int kPollsOfOne = 8;  // then all streams are polled once
// What a message without bytes takes while it waits.
constexpr std::size_t kWaitingEntry = 128;

[[noreturn]] void refuse(const std::string& expected, const std::string& found) {
  throw Error(ErrorCategory::communication, "transport", expected, found);
}

}  // namespace

Endpoint::Endpoint(int rank, std::vector<int> nodes, std::uint64_t job, std::uint32_t generation,
                   std::size_t max_waiting)
    : rank_(rank),
      nodes_(std::move(nodes)),
      job_(job),
      generation_(generation),
      max_waiting_(max_waiting) {
  for (int other = 0; other < size(); ++other)
    peers_.push_back(std::make_unique<Peer>(other, static_cast<MessageSink&>(*this)));
}

std::uint64_t Endpoint::post(const Posted& posted) {
  if (unused_.empty()) {
    posted_.push_back(posted);
    return posted_.size();
  }
  const std::uint64_t id = unused_.back();
  unused_.pop_back();
  at(id) = posted;
  return id;
}

Message Endpoint::send(int to, std::uint64_t context, Tag tag, std::span<const std::byte> bytes) {
  Peer& other = peer(to);
  if (other.lost) throw Error(ErrorCategory::communication, *other.lost);
  const std::uint64_t id = post({.peer = to});
  other.outgoing.add({.job = job_,
                      .generation = generation_,
                      .tag = tag,
                      .context = context,
                      .sequence = other.sequence++,
                      .bytes = bytes.size()},
                     bytes, id);
  move(to);
  return {id};
}

void Endpoint::sent(int rank, std::size_t bytes) {
  for (const std::uint64_t id : peer(rank).outgoing.sent(bytes)) at(id).is_complete = true;
}

Message Endpoint::receive(const Matching& from, std::span<std::byte> memory) {
  const std::uint64_t id = post({.peer = from.from, .is_receive = true, .memory = memory});
  Queue& queue = queues_[from];
  const auto unclaimed =
      std::ranges::find(queue.waiting, 0U, [](const auto& one) { return one->receive; });
  if (unclaimed == queue.waiting.end()) {
    queue.receives.push_back(id);
  } else {
    const std::shared_ptr<Waiting> waiting = *unclaimed;
    waiting->receive = id;
    if (waiting->is_complete) {
      queue.waiting.erase(unclaimed);
      finish_waiting(peer(from.from), *waiting);
    }
  }
  // The message that is held may be this one, or have room now.
  if (peer(from.from).is_held) move(from.from);
  return {id};
}

// Copies a message that has waited to the memory of its receive.
void Endpoint::finish_waiting(Peer& peer, Waiting& waiting) {
  Posted& receive = at(waiting.receive);
  peer.waiting -= waiting.bytes.size() + kWaitingEntry;
  std::copy_n(waiting.bytes.begin(), std::min(waiting.bytes.size(), receive.memory.size()),
              receive.memory.begin());
  complete(waiting.receive, waiting.bytes.size());
}

void Endpoint::complete(std::uint64_t receive, std::uint64_t bytes) {
  at(receive).bytes = bytes;
  at(receive).is_complete = true;
}

bool Endpoint::poll(Message& message, std::size_t* received) {
  if (!message.is_in_flight()) return true;
  if (!at(message.id).is_complete) {
    if (++polls_ % kPollsOfOne == 0)
      move_all();
    else
      move(at(message.id).peer);
  }
  const Posted& posted = at(message.id);
  if (!posted.is_complete) {
    if (const auto& lost = peer(posted.peer).lost) throw Error(ErrorCategory::communication, *lost);
    return false;
  }
  unused_.push_back(std::exchange(message.id, 0));
  if (posted.bytes > posted.memory.size())
    refuse(fmt::format("expected a message of at most {} bytes", posted.memory.size()),
           fmt::format("got {} of rank {}", posted.bytes, posted.peer));
  if (received != nullptr && posted.is_receive) *received = posted.bytes;
  return true;
}

std::optional<Arrival> Endpoint::probe(std::uint64_t context, Tag tag,
                                       std::span<const int> members) {
  move_all();
  for (std::size_t member = 0; member < members.size(); ++member) {
    const auto found = queues_.find({.from = members[member], .context = context, .tag = tag});
    if (found == queues_.end()) continue;
    for (const auto& waiting : found->second.waiting)
      if (waiting->is_complete && waiting->receive == 0)
        return Arrival{.from = static_cast<int>(member), .bytes = waiting->bytes.size()};
  }
  return std::nullopt;
}

void Endpoint::lose(int rank, const ErrorMessage& why) {
  if (!peer(rank).lost) peer(rank).lost = why;
}

std::optional<std::span<std::byte>> Endpoint::begin(int from, const MessageHeader& header) {
  Peer& sender = peer(from);
  if (header.job != job_)
    refuse("expected messages of this job",
           fmt::format("got one of another job from rank {}", from));
  if (header.generation > generation_)
    refuse(fmt::format("expected messages of generation {}", generation_),
           fmt::format("got one of {} from rank {}", header.generation, from));
  sender.arriving_bytes = header.bytes;
  sender.receive = 0;
  sender.unexpected = nullptr;
  if (header.generation < generation_) {
    ++dropped_;
    sender.arriving.reset();
    return std::span<std::byte>();
  }
  const Matching matching{.from = from, .context = header.context, .tag = header.tag};
  Queue& queue = queues_[matching];
  if (!queue.receives.empty()) {
    sender.is_held = false;
    sender.arriving = matching;
    sender.receive = queue.receives.front();
    queue.receives.pop_front();
    return at(sender.receive).memory;
  }
  // A message that is larger than the limit waits in the stream for its receive.
  sender.is_held = sender.waiting + header.bytes + kWaitingEntry > max_waiting_;
  if (sender.is_held) return std::nullopt;
  sender.waiting += header.bytes + kWaitingEntry;
  sender.arriving = matching;
  sender.unexpected = queue.waiting.emplace_back(std::make_shared<Waiting>());
  sender.unexpected->bytes.resize(header.bytes);
  return sender.unexpected->bytes;
}

void Endpoint::end(int from) {
  Peer& sender = peer(from);
  if (sender.receive != 0) return complete(sender.receive, sender.arriving_bytes);
  if (!sender.unexpected) return;
  sender.unexpected->is_complete = true;
  if (sender.unexpected->receive == 0) return;
  std::erase(queues_[*sender.arriving].waiting, sender.unexpected);
  finish_waiting(sender, *sender.unexpected);
}

namespace {

// Distinct sets have distinct numbers, with a probability that a job never exhausts: 64 bits that
// depend on the set that they were made from, on its members and on how many were made before.
std::uint64_t next_context(std::uint64_t context, std::uint64_t number,
                           std::span<const int> members) {
  std::vector<std::uint64_t> parts = {context, number};
  for (const int member : members) parts.push_back(static_cast<std::uint64_t>(member));
  return XXH3_64bits(parts.data(), parts.size() * sizeof(parts.front()));
}

class Set final : public Transport {
 public:
  Set(std::shared_ptr<Endpoint> endpoint, std::uint64_t context, std::vector<int> members)
      : endpoint_(std::move(endpoint)), context_(context), members_(std::move(members)) {
    rank_ = static_cast<int>(std::ranges::find(members_, endpoint_->rank()) - members_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int node_of(int member) const override { return endpoint_->node_of(rank_of(member)); }

  Message send(int to, Tag tag, std::span<const std::byte> bytes) override {
    return endpoint_->send(rank_of(to), context_, tag, bytes);
  }
  Message receive(int from, Tag tag, std::span<std::byte> memory) override {
    return endpoint_->receive({.from = rank_of(from), .context = context_, .tag = tag}, memory);
  }
  bool poll(Message& message, std::size_t* received) override {
    return endpoint_->poll(message, received);
  }
  std::optional<Arrival> probe(Tag tag) override {
    return endpoint_->probe(context_, tag, members_);
  }
  bool sleep(std::chrono::nanoseconds longest) override { return endpoint_->sleep(longest); }

  std::shared_ptr<Transport> subset(std::span<const int> members) override {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(rank_of(member));
    const std::uint64_t context = next_context(context_, ++subsets_, ranks);
    if (std::ranges::find(ranks, endpoint_->rank()) == ranks.end()) return nullptr;
    return std::make_shared<Set>(endpoint_, context, std::move(ranks));
  }

  Turn& turn() override { return endpoint_->turn(); }
  bool is_open() const override { return true; }
  void abandon() override {}

 private:
  int rank_of(int member) const { return members_[static_cast<std::size_t>(member)]; }

  std::shared_ptr<Endpoint> endpoint_;
  std::uint64_t context_;
  std::vector<int> members_;  // their ranks in the job
  int rank_;
  std::uint64_t subsets_ = 0;
};

}  // namespace

std::shared_ptr<Transport> make_transport(std::shared_ptr<Endpoint> endpoint) {
  std::vector<int> all(static_cast<std::size_t>(endpoint->size()));
  std::iota(all.begin(), all.end(), 0);
  return std::make_shared<Set>(std::move(endpoint), 0, std::move(all));
}

}  // namespace lockstep::inline v0::allreduce
