// Authentication of both ends of a connection, over real sockets, with simulated time.
#include "lockstep/net/authentication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::net {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSoon{20000};
const JobSecret kSecret("a secret of this job", "test");
const JobSecret kOther("a secret of another job", "test");

class Authentication : public ::testing::Test {
 protected:
  void listen(const JobSecret& secret) {
    std::vector<Listener> listeners;
    listeners.emplace_back("127.0.0.1", std::uint16_t{0});
    pending_.emplace(std::move(listeners), secret, kWatchPurpose);
  }
  FileDescriptor connect() const {
    std::string why;
    FileDescriptor socket =
        connect_to("127.0.0.1", pending_->listeners().front().port(), kSoon, why);
    EXPECT_TRUE(socket.is_open()) << why;
    return socket;
  }
  /// Continues handshakes while `action` runs.
  void while_listening(const std::function<void()>& action) {
    std::atomic<bool> done{false};
    std::thread listens([&] {
      while (!done) {
        for (FileDescriptor& socket : pending_->advance(0))
          authenticated_.push_back(std::move(socket));
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
    action();
    done = true;
    listens.join();
    for (FileDescriptor& socket : pending_->advance(0)) authenticated_.push_back(std::move(socket));
  }
  /// The reason why an end with `secret` is not authenticated; empty if it is.
  std::string refusal_of(const FileDescriptor& socket, const JobSecret& secret) {
    std::string why;
    while_listening([&] { authenticate(socket, secret, kWatchPurpose, kSoon, why); });
    return why;
  }

  std::optional<PendingConnections> pending_;
  std::vector<FileDescriptor> authenticated_;
};

TEST_F(Authentication, KeepsDataAfterTheHandshake) {
  listen(kSecret);
  const FileDescriptor socket = connect();
  EXPECT_EQ(refusal_of(socket, kSecret), "");
  ASSERT_EQ(authenticated_.size(), 1U);
  ASSERT_EQ(::send(socket.get(), "hello", 5, 0), 5);
  std::array<char, 16> text{};
  pollfd ready{.fd = authenticated_[0].get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&ready, 1, 20000), 1);
  EXPECT_EQ(recv(authenticated_[0].get(), text.data(), text.size(), 0), 5);
}

TEST_F(Authentication, RejectsAnotherSecretAtBothEnds) {
  listen(kSecret);
  {
    const FileDescriptor socket = connect();
    EXPECT_EQ(refusal_of(socket, kOther), "it does not know the secret of this job");
  }
  // A client that continues although the other end has not authenticated itself.
  const FileDescriptor socket = connect();
  Handshake handshake(kOther, Handshake::Role::initiator, kWatchPurpose);
  const std::string first = handshake.drain_output();
  const std::string all = first + std::string(sizeof(JobSecret::Mac), 'x');
  ASSERT_EQ(::send(socket.get(), all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
  while_listening([&] {
    std::array<char, 256> answer{};
    while (recv(socket.get(), answer.data(), answer.size(), MSG_DONTWAIT) != 0)
      std::this_thread::sleep_for(milliseconds(1));
  });
  EXPECT_TRUE(authenticated_.empty());
  EXPECT_EQ(pending_->refused(), 2);
}

TEST_F(Authentication, WithoutASecretRequiresTheSameUserAndHost) {
  listen(JobSecret::none());
  const FileDescriptor socket = connect();
  EXPECT_EQ(refusal_of(socket, JobSecret::none()), "");
  ASSERT_EQ(authenticated_.size(), 1U);
  EXPECT_TRUE(belongs_to_this_user(socket.get()));
  EXPECT_TRUE(belongs_to_this_user(authenticated_[0].get()));
  if (geteuid() != 0) return;
  // Another user checks this connection.
  ASSERT_EQ(seteuid(12345), 0);
  const bool others = belongs_to_this_user(socket.get());
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_FALSE(others);
}

TEST_F(Authentication, HasNoUserForAClosedSocket) {
  const Listener listener("127.0.0.1", 0);
  std::string why;
  const FileDescriptor socket = connect_to("127.0.0.1", listener.port(), kSoon, why);
  EXPECT_FALSE(belongs_to_this_user(socket.get())) << "not accepted yet";
  FileDescriptor accepted = listener.accept();
  EXPECT_TRUE(belongs_to_this_user(socket.get()));
  accepted = FileDescriptor();
  EXPECT_FALSE(belongs_to_this_user(socket.get()));
}

TEST_F(Authentication, SucceedsAmongSilentConnections) {
  listen(kSecret);
  std::vector<FileDescriptor> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(connect());
  const FileDescriptor socket = connect();
  std::string why;
  std::atomic<bool> done{false};
  std::thread client([&] {
    EXPECT_TRUE(authenticate(socket, kSecret, kWatchPurpose, kSoon, why)) << why;
    done = true;
  });
  double now = 0;
  while (!done && now < 3) {
    for (FileDescriptor& one : pending_->advance(now)) authenticated_.push_back(std::move(one));
    std::vector<pollfd> interests;
    pending_->add_interests(interests, now);
    EXPECT_LE(interests.size(), PendingConnections::kMaxPending + 1);
    now += 0.01;
    std::this_thread::sleep_for(milliseconds(2));
  }
  client.join();
  EXPECT_LT(now, 3) << "seconds of the listening end's clock";
}

TEST_F(Authentication, DoesNotSpinWhileSilentConnectionsFillAllSlots) {
  listen(kSecret);
  std::vector<FileDescriptor> idle;
  std::vector<pollfd> interests;
  for (std::size_t i = 0; i < PendingConnections::kMaxPending; ++i) {
    idle.push_back(connect());
    pollfd arrival{
        .fd = pending_->listeners().front().descriptor(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&arrival, 1, 20000), 1);
    pending_->advance(0);
  }
  pending_->add_interests(interests, 0);
  ASSERT_EQ(interests.size(), PendingConnections::kMaxPending) << "all slots are in use";
  EXPECT_EQ(pending_->next_deadline(0), PendingConnections::kBusyPatience);
  EXPECT_EQ(pending_->next_deadline(PendingConnections::kBusyPatience),
            PendingConnections::kPatience);
  interests.clear();
  pending_->add_interests(interests, PendingConnections::kBusyPatience);
  EXPECT_EQ(interests.size(), PendingConnections::kMaxPending + 1)
      << "a new connection is an event";
}

TEST_F(Authentication, TimesOut) {
  listen(kSecret);
  const FileDescriptor socket = connect();
  pollfd interest{.fd = pending_->listeners().front().descriptor(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&interest, 1, 20000), 1);
  pending_->advance(0);
  EXPECT_EQ(pending_->next_deadline(0), PendingConnections::kPatience);
  pending_->advance(PendingConnections::kPatience);
  EXPECT_EQ(pending_->refused(), 0);
  pending_->advance(PendingConnections::kPatience + 1);
  EXPECT_EQ(pending_->refused(), 1);
  char byte = 0;
  interest.fd = socket.get();
  ASSERT_EQ(poll(&interest, 1, 20000), 1);
  EXPECT_EQ(recv(socket.get(), &byte, 1, 0), 0);
}

TEST_F(Authentication, PausesWithoutDescriptors) {
  listen(kSecret);
  const FileDescriptor socket = connect();
  const FileDescriptor probe(dup(socket.get()));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(probe.get()) + 1, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  pending_->advance(0);
  setrlimit(RLIMIT_NOFILE, &before);
  std::vector<pollfd> interests;
  pending_->add_interests(interests, 0);
  EXPECT_TRUE(interests.empty()) << "a listener that stays ready would make every wait end at once";
  EXPECT_EQ(pending_->next_deadline(0), 1);
  pending_->advance(1);
  pending_->add_interests(interests, 1);
  EXPECT_EQ(interests.size(), 2U);
}

}  // namespace
}  // namespace lockstep::inline v0::net
