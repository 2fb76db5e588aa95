#include "lockstep/data/order/interleave_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {
namespace {

/// A slot whose yield changes when it is visited in `round`.
struct Change {
  std::int64_t round = 0;
  std::size_t slot = 0;
  bool is_end = false;  // the slot's input ends; otherwise the slot is empty
  std::size_t input = 0;
  bool operator>(const Change& other) const {
    return std::tie(round, slot) > std::tie(other.round, other.slot);
  }
};

}  // namespace

InterleaveOrder::InterleaveOrder(std::span<const std::int64_t> sizes, std::int64_t cycle_length,
                                 std::int64_t block_length)
    : slots_(std::min(sizes.size(), static_cast<std::size_t>(cycle_length))),
      block_length_(block_length),
      first_round_(sizes.size()) {
  LOCKSTEP_CHECK(!sizes.empty() && cycle_length >= 1 && block_length >= 1);
  std::priority_queue<Change, std::vector<Change>, std::greater<>> changes;
  for (std::size_t slot = 0; slot < slots_; ++slot) changes.push({.slot = slot});
  std::size_t next_input = 0;
  phases_.push_back({});
  while (!changes.empty()) {
    Phase phase = phases_.back();
    const std::int64_t round = changes.top().round;
    phase.first_position += (round - phase.first_round) * nodes_[phase.root].yield;
    phase.first_round = round;
    while (!changes.empty() && changes.top().round == round) {
      Change change = changes.top();
      changes.pop();
      Node leaf;
      if (!change.is_end && next_input < sizes.size()) {
        change.input = next_input++;
        first_round_[change.input] = round;
        const std::int64_t whole_blocks = sizes[change.input] / block_length;
        changes.push({round + whole_blocks, change.slot, true, change.input});
        if (whole_blocks == 0) continue;  // it ends in this round
        leaf = {block_length, 0, static_cast<NodeId>(change.input)};
      } else if (change.is_end) {
        leaf = {sizes[change.input] % block_length, 0, static_cast<NodeId>(change.input)};
        changes.push({round + 1, change.slot, false, 0});
      }
      phase.root = with_slot(phase.root, 0, slots_, change.slot, leaf);
    }
    phases_.push_back(phase);
  }
}

/// A copy of the tree of `node`, over slots [begin, end), with one slot replaced.
InterleaveOrder::NodeId InterleaveOrder::with_slot(NodeId node, std::size_t begin, std::size_t end,
                                                   std::size_t slot, const Node& leaf) {
  Node changed = leaf;
  if (end - begin > 1) {
    changed = nodes_[node];
    const std::size_t middle = begin + (end - begin) / 2;
    if (slot < middle)
      changed.left = with_slot(changed.left, begin, middle, slot, leaf);
    else
      changed.right = with_slot(changed.right, middle, end, slot, leaf);
    changed.yield = nodes_[changed.left].yield + nodes_[changed.right].yield;
  }
  LOCKSTEP_CHECK_OP(nodes_.size(), <, std::size_t{~NodeId{0}});
  nodes_.push_back(changed);
  return static_cast<NodeId>(nodes_.size() - 1);
}

InterleaveOrder::Position InterleaveOrder::operator[](std::int64_t position) const {
  LOCKSTEP_CHECK_OP(position, >=, 0);
  // If phases start at the same position, only the last yields elements.
  const auto after = std::ranges::upper_bound(phases_, position, {}, &Phase::first_position);
  const Phase& phase = *(after - 1);
  const std::int64_t yield = nodes_[phase.root].yield;
  LOCKSTEP_CHECK_OP(yield, >, 0);
  const std::int64_t round = phase.first_round + (position - phase.first_position) / yield;
  std::int64_t in_round = (position - phase.first_position) % yield;
  NodeId node = phase.root;
  for (std::size_t slots = slots_; slots > 1;) {
    const std::int64_t left_yield = nodes_[nodes_[node].left].yield;
    const bool is_left = in_round < left_yield;
    node = is_left ? nodes_[node].left : nodes_[node].right;
    in_round -= is_left ? 0 : left_yield;
    slots = is_left ? slots / 2 : slots - slots / 2;
  }
  const std::size_t input = nodes_[node].right;
  return {input, (round - first_round_[input]) * block_length_ + in_round};
}

}  // namespace lockstep::inline v0::data
