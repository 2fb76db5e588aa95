#include "lockstep/allreduce/transport/mpi/mpi_transport.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

Turn& turn_in_mpi() {
  static Turn& turn = *new Turn;  // leaked, for groups that are destroyed after static objects
  return turn;
}

void check(const MpiFunctions& mpi, int status, const char* call) {
  if (status == 0) return;
  std::array<char, 512> text{};
  mpi.describe_status(status, text.data(), static_cast<int>(text.size()));
  throw Error(ErrorCategory::communication, "mpi", fmt::format("expected {} to succeed", call),
              text.data());
}

class MpiTransport final : public Transport {
 public:
  /// Owns `comm`. `nodes`: the node of each member.
  MpiTransport(const MpiFunctions& mpi, MpiHandle comm, std::vector<int> nodes)
      : mpi_(mpi), comm_(comm), rank_(mpi.rank(comm)), nodes_(std::move(nodes)) {
    mpi_.return_errors(comm_);
  }

  // Freeing a communicator is collective, so it may hang after a failure.
  ~MpiTransport() override {
    if (is_abandoned_ || !MpiTransport::is_open()) return;
    const std::lock_guard lock(turn_in_mpi().mutex);
    mpi_.free_communicator(comm_);
  }

  MpiHandle comm() const { return comm_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(nodes_.size()); }
  int node_of(int member) const override { return nodes_[static_cast<std::size_t>(member)]; }

  Message send(int to, Tag tag, std::span<const std::byte> bytes) override {
    Message message;
    check(mpi_,
          mpi_.send(comm_, to, static_cast<int>(tag), bytes.data(), static_cast<int>(bytes.size()),
                    &message.id),
          "MPI_Isend");
    return message;
  }

  Message receive(int from, Tag tag, std::span<std::byte> memory) override {
    Message message;
    check(mpi_,
          mpi_.receive(comm_, from, static_cast<int>(tag), memory.data(),
                       static_cast<int>(memory.size()), &message.id),
          "MPI_Irecv");
    return message;
  }

  bool poll(Message& message, std::size_t* received) override {
    if (!message.is_in_flight()) return true;
    MpiArrival arrival;
    check(mpi_, mpi_.test(&message.id, &arrival), "a message between ranks");
    if (message.is_in_flight()) return false;
    if (received != nullptr) *received = static_cast<std::size_t>(arrival.bytes);
    return true;
  }

  std::optional<Arrival> probe(Tag tag) override {
    bool has_arrived = false;
    MpiArrival arrival;
    check(mpi_, mpi_.probe(comm_, static_cast<int>(tag), &has_arrived, &arrival), "MPI_Iprobe");
    if (!has_arrived) return std::nullopt;
    return Arrival{.from = arrival.from, .bytes = static_cast<std::size_t>(arrival.bytes)};
  }

  std::shared_ptr<Transport> subset(std::span<const int> members) override {
    const int number = subsets_++ % kSubsets;
    std::vector<int> nodes;
    bool is_member = false;
    for (const int member : members) {
      nodes.push_back(node_of(member));
      is_member = is_member || member == rank_;
    }
    if (!is_member) return nullptr;
    const std::lock_guard lock(turn_in_mpi().mutex);
    MpiHandle comm = 0;
    check(mpi_,
          mpi_.create_subset(comm_, members.data(), static_cast<int>(members.size()),
                             kFirstSubset + number, &comm),
          "MPI_Comm_create_group");
    return std::make_shared<MpiTransport>(mpi_, comm, std::move(nodes));
  }

  Turn& turn() override { return turn_in_mpi(); }
  bool is_open() const override { return !mpi_.is_finalized(); }
  void abandon() override { is_abandoned_ = true; }

 private:
  // MPI_Comm_create_group has a tag, and 32767 is the largest that every MPI has.
  static constexpr int kFirstSubset = 8;
  static constexpr int kSubsets = 32000;

  const MpiFunctions& mpi_;
  MpiHandle comm_;
  int rank_;
  std::vector<int> nodes_;
  int subsets_ = 0;
  bool is_abandoned_ = false;
};

int first_rank_of_node(const MpiFunctions& mpi, MpiHandle ranks) {
  const int rank = mpi.rank(ranks);
  MpiHandle node = 0;
  check(mpi, mpi.split_by_node(ranks, &node), "MPI_Comm_split_type");
  std::vector<int> all(static_cast<std::size_t>(mpi.size(node)));
  check(mpi, mpi.all_gather(node, rank, all.data()), "MPI_Allgather");
  mpi.free_communicator(node);
  return all.front();
}

}  // namespace

std::shared_ptr<Transport> make_mpi_transport(const MpiFunctions& mpi, MpiHandle ranks,
                                              std::optional<int> node) {
  MpiHandle comm = 0;
  check(mpi, mpi.duplicate(ranks, &comm), "MPI_Comm_dup");
  if (!node) node = first_rank_of_node(mpi, comm);
  std::vector<int> nodes(static_cast<std::size_t>(mpi.size(comm)));
  check(mpi, mpi.all_gather(comm, *node, nodes.data()), "MPI_Allgather");
  return std::make_shared<MpiTransport>(mpi, comm, std::move(nodes));
}

MpiHandle mpi_communicator(const Transport& transport) {
  const auto* mpi = dynamic_cast<const MpiTransport*>(&transport);
  return mpi == nullptr ? 0 : mpi->comm();
}

}  // namespace lockstep::inline v0::allreduce
