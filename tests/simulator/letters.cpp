#include "tests/simulator/letters.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/allreduce/letters/point_to_point.h"
#include "tests/support/simulated_network.h"

namespace lockstep::inline v0::simulator {
namespace {

using allreduce::kAnySource;
using allreduce::Letter;
using allreduce::NetworkOptions;
using allreduce::PointToPoint;
using allreduce::SimulatedNetwork;
using allreduce::Transport;

constexpr std::uint64_t kMaxEvents = 2'000'000;

/// A letter that is sent, with the place that receives it.
struct Pair {
  int from = 0;
  int to = 0;
  int tag = 0;
  bool is_of_any = false;    // the receiver takes it from anybody
  bool is_too_long = false;  // for its receiver
  std::vector<std::byte> sent = {};
  std::vector<std::byte> received = {};
  std::shared_ptr<Letter> out = {};
  std::shared_ptr<Letter> in = {};
};

class Post {
 public:
  explicit Post(std::uint64_t seed)
      : network_(2 + static_cast<int>(seed / 7 % 3), seed, {.capacity = 65536}) {
    for (int member = 0; member < network_.size(); ++member) {
      transports_.push_back(network_.transport(member));
      posts_.push_back(std::make_unique<PointToPoint>(*transports_.back()));
    }
    // Receives from anybody have a tag of their own: who is first would be open otherwise.
    for (int count = 1 + network_.pick(20); count > 0; --count) {
      const bool is_of_any = network_.pick(4) == 0;
      const int from = network_.pick(network_.size());
      Pair pair{.from = from,
                .to = (from + 1 + network_.pick(network_.size() - 1)) % network_.size(),
                .tag = is_of_any ? 100 : network_.pick(3),
                .is_of_any = is_of_any};
      const std::size_t size = sizes_[static_cast<std::size_t>(network_.pick(4))];
      pair.sent.assign(size, static_cast<std::byte>(count));
      pair.is_too_long = !is_of_any && size > 0 && network_.pick(12) == 0;
      // All letters for anybody have one size.
      if (is_of_any) pair.sent.assign(18'000, static_cast<std::byte>(count));
      pair.received.resize(pair.sent.size() - (pair.is_too_long ? 1 : 0));
      pairs_.push_back(std::make_unique<Pair>(std::move(pair)));
    }
  }

  Outcome finish() {
    try {
      std::size_t sent = 0;
      std::size_t received = 0;
      while (sent < pairs_.size() || received < pairs_.size() || !is_over()) {
        if (++outcome_.events == kMaxEvents) throw std::string("it does not end");
        if (sent < pairs_.size() && network_.pick(20) == 0) send(*pairs_[sent++]);
        if (received < pairs_.size() && network_.pick(20) == 0) receive(*pairs_[received++]);
        network_.step();
        const auto member = static_cast<std::size_t>(network_.pick(network_.size()));
        if (network_.pick(3) == 0 && posts_[member]->advance()) note(member);
      }
      for (const auto& pair : pairs_) check(*pair);
    } catch (const std::string& failure) {
      outcome_.failure =
          failure + fmt::format("; {} letters of {} members", pairs_.size(), network_.size());
    }
    return outcome_;
  }

 private:
  void send(Pair& pair) {
    pair.out = std::make_shared<Letter>(
        Letter{.is_sent = true, .member = pair.to, .tag = pair.tag, .memory = pair.sent});
    posts_[static_cast<std::size_t>(pair.from)]->add(pair.out);
  }
  void receive(Pair& pair) {
    pair.in = std::make_shared<Letter>(Letter{.member = pair.is_of_any ? kAnySource : pair.from,
                                              .tag = pair.tag,
                                              .memory = pair.received});
    posts_[static_cast<std::size_t>(pair.to)]->add(pair.in);
  }

  bool is_over() const {
    return std::ranges::all_of(posts_, [](const auto& post) { return post->is_idle(); }) &&
           std::ranges::all_of(pairs_, [](const auto& pair) {
             return pair->out && pair->in && pair->out->is_done && pair->in->is_done;
           });
  }

  /// Letters are received in the order in which they were sent: each by its own receive.
  void check(const Pair& pair) const {
    if (pair.in->error.has_value() != pair.is_too_long)
      throw pair.in->error ? "an error of a letter that fits: " + pair.in->error->actual
                           : std::string("a letter that does not fit was received");
    const bool is_refused = pair.is_too_long && pair.sent.size() > PointToPoint::kShort;
    if (pair.out->error.has_value() != is_refused)
      throw std::string("the sender has another outcome than the receiver");
    if (pair.is_too_long) return;
    if (pair.in->bytes != pair.sent.size()) throw std::string("a letter of another length");
    if (!pair.is_of_any && (pair.in->source != pair.from || pair.received != pair.sent))
      throw fmt::format("the letter of {} to {} with tag {} is another", pair.from, pair.to,
                        pair.tag);
    if (!pair.is_of_any) return;
    const auto sender = std::ranges::find_if(pairs_, [&](const auto& other) {
      return other->to == pair.to && other->tag == pair.tag && other->sent == pair.received;
    });
    if (sender == pairs_.end() || (*sender)->from != pair.in->source)
      throw std::string("a letter of anybody is that of nobody");
  }

  void note(std::uint64_t what) {
    const std::uint64_t all[] = {outcome_.digest, what, outcome_.events};
    outcome_.digest = XXH3_64bits(all, sizeof(all));
  }

  const std::vector<std::size_t> sizes_ = {0, 30, 17'000, 20'000};
  SimulatedNetwork network_;
  std::vector<std::shared_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<PointToPoint>> posts_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  Outcome outcome_;
};

}  // namespace

Outcome run_letters(std::uint64_t seed) { return Post(seed).finish(); }

}  // namespace lockstep::inline v0::simulator
