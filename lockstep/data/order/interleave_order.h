// Blocks of several inputs in turn, as tf.data interleaves them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// A cycle has `cycle_length` slots. A *round* visits each slot once, in order. A slot that is empty opens the next
/// input, as long as there is one; then the slot gives the next `block_length` elements of its input, or those that are
/// left. An input that is found at its end leaves the slot empty until the next round.
///
/// What a round gives changes only where an input opens or ends. The rounds between two such changes are one *phase*,
/// which holds, as a tree of sums over the slots, what each of them gives. A phase shares with the one before it all
/// of the tree but the paths to slots that changed, so that the memory is O(inputs * log(cycle_length)) whatever the
/// number of elements, and a position is found in O(log(inputs)): the phase, the round by a division, the slot by a
/// walk down the tree.
class InterleaveOrder {
 public:
  struct Place {
    std::size_t input = 0;
    std::int64_t index = 0;  ///< within the input
    bool operator==(const Place&) const = default;
  };

  /// `sizes` of the inputs, from 0; at least one input, `cycle_length` and `block_length` at least 1.
  InterleaveOrder(std::span<const std::int64_t> sizes, std::int64_t cycle_length, std::int64_t block_length);

  /// Who gives the element at `position`, 0 .. sum of sizes - 1. Any thread may ask for any position.
  Place operator[](std::int64_t position) const;

 private:
  using NodeId = std::uint32_t;
  /// Of the tree of sums. Those of slots have no children, but an input.
  struct Node {
    std::int64_t gives = 0;  // elements in a round
    NodeId left = 0;
    NodeId right = 0;  // of a slot: the input
  };
  struct Phase {
    std::int64_t first_position = 0;
    std::int64_t first_round = 0;
    NodeId root = 0;
  };

  NodeId with_slot(NodeId node, std::size_t begin, std::size_t end, std::size_t slot, const Node& leaf);

  std::size_t slots_;
  std::int64_t block_length_;
  std::vector<Node> nodes_ = {{}};         // node 0: slots that give nothing
  std::vector<std::int64_t> first_round_;  // of each input
  std::vector<Phase> phases_;
};

}  // namespace lockstep::data
