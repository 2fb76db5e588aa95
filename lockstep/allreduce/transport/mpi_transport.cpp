#include "lockstep/allreduce/transport/mpi_transport.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

Turn& turn_in_mpi() {
  static Turn& turn = *new Turn;  // leaked, for groups that are destroyed after static objects
  return turn;
}

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw Error(ErrorCategory::communication, "mpi", fmt::format("expected {} to succeed", call),
              text.data());
}

// A request of Open MPI is a pointer, one of MPICH an integer that is not 0.
static_assert(sizeof(MPI_Request) <= sizeof(Message::id));

Message message_of(MPI_Request request) {
  Message message;
  std::memcpy(&message.id, &request, sizeof(request));
  return message;
}

MPI_Request request_of(Message message) {
  MPI_Request request = MPI_REQUEST_NULL;
  std::memcpy(&request, &message.id, sizeof(request));
  return request;
}

class MpiTransport final : public Transport {
 public:
  /// Owns `comm`. `nodes`: the node of each member.
  MpiTransport(MPI_Comm comm, std::vector<int> nodes) : comm_(comm), nodes_(std::move(nodes)) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
  }

  // MPI_Comm_free is collective, so it may hang after a failure.
  ~MpiTransport() override {
    if (is_abandoned_ || !MpiTransport::is_open()) return;
    const std::lock_guard lock(turn_in_mpi().mutex);
    MPI_Comm_free(&comm_);
  }

  MPI_Comm comm() const { return comm_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(nodes_.size()); }
  int node_of(int member) const override { return nodes_[static_cast<std::size_t>(member)]; }

  Message send(int to, Tag tag, std::span<const std::byte> bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to,
                    static_cast<int>(tag), comm_, &request),
          "MPI_Isend");
    return message_of(request);
  }

  Message receive(int from, Tag tag, std::span<std::byte> memory) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(memory.data(), static_cast<int>(memory.size()), MPI_BYTE, from,
                    static_cast<int>(tag), comm_, &request),
          "MPI_Irecv");
    return message_of(request);
  }

  bool poll(Message& message, std::size_t* received) override {
    if (!message.is_in_flight()) return true;
    MPI_Request request = request_of(message);
    MPI_Status status;
    int is_complete = 0;
    const int result = MPI_Test(&request, &is_complete, &status);
    if (result != MPI_SUCCESS || is_complete != 0) message = {};
    check(result, "a message between ranks");
    if (is_complete == 0) return false;
    if (received != nullptr) *received = length_of(status);
    return true;
  }

  std::optional<Arrival> probe(Tag tag) override {
    int has_arrived = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, static_cast<int>(tag), comm_, &has_arrived, &status),
          "MPI_Iprobe");
    if (has_arrived == 0) return std::nullopt;
    return Arrival{.from = status.MPI_SOURCE, .bytes = length_of(status)};
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
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_group(comm_, &all);
    MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    const int status = MPI_Comm_create_group(comm_, some, kFirstSubset + number, &comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    check(status, "MPI_Comm_create_group");
    return std::make_shared<MpiTransport>(comm, std::move(nodes));
  }

  Turn& turn() override { return turn_in_mpi(); }
  bool is_open() const override {
    int is_over = 0;
    MPI_Finalized(&is_over);
    return is_over == 0;
  }
  void abandon() override { is_abandoned_ = true; }

 private:
  // MPI_Comm_create_group has a tag, and 32767 is the largest that every MPI has.
  static constexpr int kFirstSubset = 8;
  static constexpr int kSubsets = 32000;

  static std::size_t length_of(const MPI_Status& status) {
    int length = 0;
    MPI_Get_count(&status, MPI_BYTE, &length);
    return static_cast<std::size_t>(length);
  }

  MPI_Comm comm_;
  int rank_ = 0;
  std::vector<int> nodes_;
  int subsets_ = 0;
  bool is_abandoned_ = false;
};

int first_rank_of_node(MPI_Comm ranks) {
  int rank = 0;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  check(MPI_Bcast(&rank, 1, MPI_INT, 0, node), "MPI_Bcast");
  MPI_Comm_free(&node);
  return rank;
}

}  // namespace

std::shared_ptr<Transport> make_mpi_transport(MPI_Comm ranks, std::optional<int> node) {
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_dup(ranks, &comm), "MPI_Comm_dup");
  if (!node) node = first_rank_of_node(comm);
  int size = 1;
  MPI_Comm_size(comm, &size);
  std::vector<int> nodes(static_cast<std::size_t>(size));
  check(MPI_Allgather(&*node, 1, MPI_INT, nodes.data(), 1, MPI_INT, comm), "MPI_Allgather");
  return std::make_shared<MpiTransport>(comm, std::move(nodes));
}

MPI_Comm mpi_communicator(const Transport& transport) {
  const auto* mpi = dynamic_cast<const MpiTransport*>(&transport);
  return mpi == nullptr ? MPI_COMM_NULL : mpi->comm();
}

}  // namespace lockstep::inline v0::allreduce
