// Messages over streams of bytes, and the algorithms over them, in a simulated network.
#include "lockstep/allreduce/transport/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <numeric>
#include <optional>

#include "lockstep/allreduce/algorithm/call_exchange.h"
#include "lockstep/allreduce/algorithm/pairwise_exchange.h"
#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "tests/support/ranks.h"
#include "tests/support/simulated_network.h"
#include "tests/support/tcp_group.h"

namespace lockstep::inline v0::allreduce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kMaxSteps = 2'000'000;

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Moves bytes until `is_done`, which may advance members too.
void run_until(SimulatedNetwork& network, const std::function<bool()>& is_done) {
  for (int step = 0; step < kMaxSteps; ++step) {
    if (is_done()) return;
    network.step();
  }
  FAIL() << "not done after " << kMaxSteps << " steps";
}

TEST(Endpoint, MatchesByMemberSetAndTagInOrder) {
  SimulatedNetwork network(2, 1);
  const auto first = network.transport(0);
  const auto second = network.transport(1);
  const auto other_first = first->duplicate();
  const auto other_second = second->duplicate();
  const auto texts = std::array{bytes_of_text("one"), bytes_of_text("two"), bytes_of_text("three"),
                                bytes_of_text("four")};
  std::vector<Message> sends = {
      first->send(1, Tag::values, texts[0]), first->send(1, Tag::values, texts[1]),
      other_first->send(1, Tag::values, texts[2]), first->send(1, Tag::call, texts[3])};
  std::array<std::vector<std::byte>, 4> memory;
  std::array<std::size_t, 4> sizes{};
  for (auto& one : memory) one.resize(8);
  // Posted in another order than sent, the first after its message has arrived.
  for (int step = 0; step < 1000; ++step) network.step();
  std::array<Message, 4> receives = {
      second->receive(0, Tag::call, memory[0]), other_second->receive(0, Tag::values, memory[1]),
      second->receive(0, Tag::values, memory[2]), second->receive(0, Tag::values, memory[3])};
  run_until(network, [&] {
    bool all = true;
    for (std::size_t i = 0; i < 4; ++i) all = second->poll(receives[i], &sizes[i]) && all;
    for (Message& send : sends) all = first->poll(send) && all;
    return all;
  });
  std::vector<std::string> received;
  for (std::size_t i = 0; i < 4; ++i)
    received.push_back(text_of(std::span(memory[i]).first(sizes[i])));
  EXPECT_THAT(received, ElementsAre("four", "three", "one", "two"));
}

TEST(Endpoint, ProbesForWhatNobodyReceives) {
  SimulatedNetwork network(3, 2);
  const auto sender = network.transport(2);
  const auto receiver = network.transport(0);
  const auto text = bytes_of_text("failed");
  Message sent = sender->send(0, Tag::failure, text);
  EXPECT_FALSE(receiver->probe(Tag::failure));
  std::optional<Arrival> arrival;
  run_until(network, [&] { return (arrival = receiver->probe(Tag::failure)).has_value(); });
  EXPECT_EQ(arrival->from, 2);
  EXPECT_EQ(arrival->bytes, text.size());
  EXPECT_FALSE(receiver->probe(Tag::call));
  std::vector<std::byte> memory(text.size());
  Message message = receiver->receive(2, Tag::failure, memory);
  EXPECT_TRUE(receiver->poll(message));
  EXPECT_EQ(memory, text);
  EXPECT_FALSE(receiver->probe(Tag::failure));
  EXPECT_TRUE(sender->poll(sent));
}

TEST(Endpoint, HoldsALimitedNumberOfBytesWithoutReceives) {
  SimulatedNetwork network(2, 3, {.capacity = std::size_t{1} << 20});
  const auto sender = network.transport(0);
  const auto receiver = network.transport(1);
  const std::vector<std::byte> large(Endpoint::kMaxWaiting * 2, std::byte{5});
  const auto small = bytes_of_text("after");
  Message first = sender->send(1, Tag::values, large);
  Message second = sender->send(1, Tag::call, small);
  for (int step = 0; step < 200; ++step) network.step();
  EXPECT_FALSE(sender->poll(first)) << "nobody has memory for it";
  std::vector<std::byte> memory(large.size());
  std::vector<std::byte> text(small.size());
  Message received = receiver->receive(0, Tag::values, memory);
  Message last = receiver->receive(0, Tag::call, text);
  run_until(network, [&] {
    const bool is_first = receiver->poll(received);
    return receiver->poll(last) && is_first && sender->poll(first) && sender->poll(second);
  });
  EXPECT_EQ(memory, large);
  EXPECT_EQ(text, small);
}

// As a member does whose operation failed: it waits for the news of others alone.
TEST(Endpoint, ReadsOnWhenAHeldMessageHasItsReceive) {
  const auto members = connected_members({0, 1});
  const std::vector<std::byte> large(Endpoint::kMaxWaiting * 2, std::byte{5});
  const auto text = bytes_of_text("failed");
  Message first = members[0]->send(1, Tag::values, large);
  Message second = members[0]->send(1, Tag::failure, text);
  const auto arrives = [&] {
    members[0]->poll(first);
    members[0]->poll(second);
    return members[1]->probe(Tag::failure).has_value();
  };
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(arrives()) << "behind a message that is held";
  std::vector<std::byte> memory(large.size());
  Message received = members[1]->receive(0, Tag::values, memory);
  bool has_arrived = false;
  for (int i = 0; i < kMaxSteps && !has_arrived; ++i) has_arrived = arrives();
  EXPECT_TRUE(has_arrived);
  EXPECT_TRUE(members[1]->poll(received));
  EXPECT_EQ(memory, large);
}

TEST(Endpoint, RefusesMoreThanTheReceiverExpects) {
  SimulatedNetwork network(2, 4);
  const auto text = bytes_of_text("longer");
  std::vector<std::byte> memory(3);
  Message sent = network.transport(0)->send(1, Tag::call, text);
  const auto receiver = network.transport(1);
  Message receive = receiver->receive(0, Tag::call, memory);
  EXPECT_THAT(error_of([&] { run_until(network, [&] { return receiver->poll(receive); }); }),
              HasSubstr("expected a message of at most 3 bytes, got 6 of rank 0"));
  EXPECT_FALSE(receive.is_in_flight());
  // The next one arrives.
  memory.resize(text.size());
  Message again = network.transport(0)->send(1, Tag::call, text);
  receive = receiver->receive(0, Tag::call, memory);
  run_until(network, [&] { return receiver->poll(receive); });
  EXPECT_EQ(memory, text);
  EXPECT_TRUE(network.transport(0)->poll(sent) && network.transport(0)->poll(again));
}

TEST(Endpoint, FailsMessagesWithALostProcess) {
  SimulatedNetwork network(2, 5);
  const auto survivor = network.transport(1);
  std::vector<std::byte> memory(3);
  Message receive = survivor->receive(0, Tag::call, memory);
  network.endpoint(1).lose(0,
                           {"transport", "expected rank 0 to stay", "got the end of its stream"});
  EXPECT_THAT(error_of([&] { survivor->poll(receive); }), HasSubstr("expected rank 0 to stay"));
  EXPECT_THAT(error_of([&] { survivor->send(0, Tag::call, memory); }), HasSubstr("to stay"));
}

/// One member's part of an operation: made after its transport, driven until it is done.
struct Simulated {
  std::shared_ptr<Transport> transport;
  MessageBuffers buffers;
  std::vector<float> values;
};

class Algorithms : public ::testing::TestWithParam<std::tuple<int, std::uint64_t>> {
 protected:
  Algorithms()
      : network_(std::get<0>(GetParam()), std::get<1>(GetParam())),
        members_(static_cast<std::size_t>(std::get<0>(GetParam()))) {
    for (int rank = 0; rank < network_.size(); ++rank)
      members_[static_cast<std::size_t>(rank)].transport = network_.transport(rank);
  }

  /// Advances the members of `operations` at random until all are done.
  template <typename Operations>
  void run(Operations& operations) {
    run_until(network_, [&] {
      auto& one = operations[network_.random()() % operations.size()];
      if (!one.is_done()) one.advance();
      return std::ranges::all_of(operations, [](const auto& each) { return each.is_done(); });
    });
  }

  SimulatedNetwork network_;
  std::vector<Simulated> members_;
};

constexpr RingOptions kSmallSegments{.segment_bytes = 128, .segments_in_flight = 3};

TEST_P(Algorithms, RingSumsTheValuesOfAll) {
  std::vector<RingReduction> rings;
  for (Simulated& member : members_) {
    member.values.resize(700);
    std::iota(member.values.begin(), member.values.end(),
              static_cast<float>(member.transport->rank()));
    rings.emplace_back(*member.transport,
                       Values{reinterpret_cast<std::byte*>(member.values.data()),
                              member.values.size(), ElementType::float32},
                       ReduceOp::sum, RingReduction::Part::all, kSmallSegments, member.buffers);
  }
  run(rings);
  const auto size = static_cast<float>(members_.size());
  for (const Simulated& member : members_)
    for (std::size_t i = 0; i < member.values.size(); ++i)
      ASSERT_EQ(member.values[i], size * static_cast<float>(i) + size * (size - 1) / 2);
}

TEST_P(Algorithms, RingBroadcastsAChunkOfOne) {
  const int root = static_cast<int>(members_.size()) - 1;
  std::vector<RingReduction> rings;
  for (Simulated& member : members_) {
    member.values.assign(700, member.transport->rank() == root ? 3.5F : 0.0F);
    std::vector<Slice> chunks(members_.size());
    chunks[static_cast<std::size_t>(root)] = {0, member.values.size()};
    rings.emplace_back(*member.transport,
                       Values{reinterpret_cast<std::byte*>(member.values.data()),
                              member.values.size(), ElementType::float32},
                       ReduceOp::sum, RingReduction::Part::all_gather, kSmallSegments,
                       member.buffers, chunks);
  }
  run(rings);
  for (const Simulated& member : members_)
    EXPECT_EQ(std::ranges::count(member.values, 3.5F), std::ssize(member.values));
}

TEST_P(Algorithms, CallsAndTheirValuesReachAll) {
  std::deque<CallExchange> exchanges;
  for (Simulated& member : members_) {
    member.values = {static_cast<float>(member.transport->rank()), 1};
    exchanges.emplace_back(*member.transport, 64);
    exchanges.back().start(Call{.kind = Call::Kind::all_reduce, .count = 2},
                           reinterpret_cast<const std::byte*>(member.values.data()));
  }
  run(exchanges);
  for (CallExchange& exchange : exchanges) {
    EXPECT_FALSE(find_difference(exchange.calls(), std::vector<int>(members_.size())));
    const auto* sums = reinterpret_cast<const float*>(exchange.result());
    EXPECT_EQ(sums[0], static_cast<float>(sum_of_ranks(static_cast<int>(members_.size()))));
    EXPECT_EQ(sums[1], static_cast<float>(members_.size()));
  }
}

TEST_P(Algorithms, PairwiseExchangeSendsEveryPart) {
  const std::size_t size = members_.size();
  const auto part_of = [](std::size_t from, std::size_t to) {
    return bytes_of_text(std::string((from * 7 + to * 3) % 5 * 100, static_cast<char>('a' + from)));
  };
  std::vector<std::vector<std::vector<std::byte>>> sent(size);
  std::vector<std::vector<std::vector<std::byte>>> received(size);
  std::vector<std::vector<std::span<const std::byte>>> parts(size);
  std::vector<PairwiseExchange> exchanges;
  for (std::size_t me = 0; me < size; ++me) {
    for (std::size_t other = 0; other < size; ++other) {
      sent[me].push_back(part_of(me, other));
      received[me].emplace_back(part_of(other, me).size());
    }
    parts[me].assign(sent[me].begin(), sent[me].end());
    exchanges.emplace_back(*members_[me].transport, parts[me], received[me], kSmallSegments,
                           members_[me].buffers);
  }
  run(exchanges);
  for (std::size_t me = 0; me < size; ++me)
    for (std::size_t other = 0; other < size; ++other)
      if (other != me) {
        EXPECT_EQ(received[me][other], part_of(other, me));
      }
}

INSTANTIATE_TEST_SUITE_P(All, Algorithms,
                         ::testing::Combine(::testing::Values(2, 3, 5, 8),
                                            ::testing::Range<std::uint64_t>(0, 8)));

}  // namespace
}  // namespace lockstep::inline v0::allreduce
