// Unauthenticated peers can neither join nor end a job, block its tasks, nor make them run
// commands.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/lockstep/launch/daemon.h"
#include "tests/apps/launch/launch_fixture.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using launch::FrameKind;
using net::FileDescriptor;
using net::JobSecret;
using net::PendingConnections;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

class UnauthenticatedPeers : public LaunchTest {
 protected:
  /// A connection to the first task, without a handshake.
  FileDescriptor connect_silently() const {
    std::string why;
    FileDescriptor socket = net::connect_to("127.0.0.1", port_, std::chrono::seconds(5), why);
    EXPECT_TRUE(socket.is_open()) << why;
    return socket;
  }

  /// Sends `text` repeatedly, until the other end closes or stops reading.
  static void send(const FileDescriptor& socket, const std::string& text, int times = 1) {
    for (int time = 0; time < times; ++time) {
      std::size_t sent = 0;
      while (sent < text.size()) {
        const ssize_t count = ::send(socket.get(), text.data() + sent, text.size() - sent,
                                     MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) sent += static_cast<std::size_t>(count);
        pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
        if (count <= 0 && poll(&ready, 1, 2000) <= 0) return;
        if (count <= 0 && (ready.revents & (POLLHUP | POLLERR)) != 0) return;
      }
    }
  }

  /// Memory of a process in MiB.
  static int memory_of(const Process& process) {
    std::ifstream status(fmt::format("/proc/{}/status", process.id()));
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmRSS:")) return std::stoi(line.substr(6)) / 1024;
    return 0;
  }

  Words with(const std::string& variable, Words words) const {
    words.insert(words.begin() + 1, variable);
    return words;
  }
};

std::string frame(FrameKind kind, const std::string& text) { return net::encode({kind, text}); }

TEST_F(UnauthenticatedPeers, DoNotEndJob) {
  Process first(task(0, {}, {"true"}));
  ASSERT_TRUE(is_listening());
  const launch::JoinRequest other{.rank = 1, .ranks = 3, .host = "evil", .place = "p", .port = 1};
  for (const std::string& words :
       {frame(FrameKind::arrive, to_text(other)), frame(FrameKind::started, ""),
        std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\xff')})
    send(connect_silently(), words);
  const Result second = run(task(1, {}, {"true"}));
  EXPECT_EQ(second.status, 0) << second.errors;
  EXPECT_EQ(first.finish().status, 0);
}

TEST_F(UnauthenticatedPeers, DoNotExhaustMemory) {
  Process first(task(0, {}, {"true"}));
  ASSERT_TRUE(is_listening());
  // Once without a handshake, and once with an incomplete one.
  const std::string piece(1 << 20, 'x');
  std::vector<FileDescriptor> held;
  for (const std::string& beginning : {std::string("\x00\x00\x00\x01"
                                                   "A",
                                                   5),
                                       "lockstp1" + std::string(32, 'n')}) {
    for (int i = 0; i < 20; ++i) {
      held.push_back(connect_silently());
      send(held.back(), beginning + piece);
    }
  }
  EXPECT_LT(memory_of(first), 100);
  EXPECT_EQ(run(task(1, {}, {"true"})).status, 0);
  EXPECT_EQ(first.finish().status, 0);
}

TEST_F(UnauthenticatedPeers, DoNotBlockMessages) {
  Process first(task(0, {}, {"true"}));
  net::Connection client = join({.rank = 1, .ranks = 2, .host = "b", .place = "b"});
  ASSERT_TRUE(receives(client, FrameKind::probe)) << "it is of this user, and may say anything";
  // Frames of five bytes, many of which are read at once.
  for (int i = 0; i < 500000; ++i) client.send(FrameKind::started);
  first.kill(SIGTERM);
  EXPECT_TRUE(receives(client, FrameKind::leave) || !client.is_open());
  client.close("");
  EXPECT_EQ(first.finish().status, 128 + SIGTERM);
}

TEST_F(UnauthenticatedPeers, DoNotBlockTasks) {
  Process first(task(0, {}, {"true"}));
  ASSERT_TRUE(is_listening());
  std::vector<FileDescriptor> idle;
  for (int i = 0; i < 500; ++i) idle.push_back(connect_silently());
  const Result second = run(task(1, {}, {"true"}));
  EXPECT_EQ(second.status, 0) << second.errors;
  EXPECT_EQ(first.finish().status, 0);
}

TEST_F(UnauthenticatedPeers, DoNotReachLoopbackJob) {
  Process first(task(0, {}, {"true"}));
  ASSERT_TRUE(is_listening());
  std::string why;
  EXPECT_FALSE(net::connect_to("127.0.0.2", port_, std::chrono::seconds(5), why).is_open());
  EXPECT_EQ(run(task(1, {}, {"true"})).status, 0);
  EXPECT_EQ(first.finish().status, 0);
}

// ---- Impersonating rank 0

class FakeFirstTask : public UnauthenticatedPeers {
 protected:
  FakeFirstTask() {
    std::filesystem::create_directories(folder_.path());
    const std::filesystem::path daemon = folder_.path() / "orted";
    std::ofstream(daemon) << "#!/bin/sh\ntouch " << pwned() << "\n";
    std::filesystem::permissions(daemon, std::filesystem::perms::owner_all);
  }
  std::string pwned() const { return (folder_.path() / "pwned").string(); }
  bool anything_ran() const { return std::filesystem::exists(pwned()); }

  /// The task of rank 1, with a daemon that leaves a marker file.
  Words victim() const {
    return with(fmt::format("PATH={}:{}", folder_.path().string(), std::getenv("PATH")),
                task(1, {"--timeout", "3"}, {"true"}));
  }

  /// Sends `frames` to a peer that authenticates, and waits until it closes the connection.
  void send_frames(const std::vector<std::string>& frames) {
    std::vector<net::Listener> listeners;
    listeners.emplace_back("127.0.0.1", port_);
    PendingConnections pending(std::move(listeners), JobSecret::none(), net::kLaunchPurpose);
    Process other(victim());
    std::vector<FileDescriptor> victims;
    for (double now = 0; victims.empty() && now < 20; now += 0.01) {
      victims = pending.advance(now);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_EQ(victims.size(), 1U);
    for (const std::string& text : frames) send(victims[0], text);
    result_ = other.finish();
  }

  ScratchDirectory folder_;
  Result result_;
};

TEST_F(FakeFirstTask, CannotRunDaemonWithoutAuthentication) {
  const net::Listener listener("127.0.0.1", port_);
  Process other(victim());
  FileDescriptor socket;
  pollfd ready{.fd = listener.descriptor(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&ready, 1, 20000), 1);
  socket = listener.accept();
  send(socket, frame(FrameKind::welcome, "") +
                   frame(FrameKind::run, nlohmann::json({"touch " + pwned(), {0}}).dump()) +
                   frame(FrameKind::leave, R"([0, ""])"));
  const Result result = other.finish();
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.errors, HasSubstr("the process there is not rank 0 of this job: "));
  EXPECT_FALSE(anything_ran());
}

TEST_F(FakeFirstTask, CannotRunCommandAsSameUser) {
  send_frames({frame(FrameKind::welcome, ""),
               frame(FrameKind::run, nlohmann::json({"touch " + pwned(), {0}}).dump())});
  EXPECT_EQ(result_.status, 4);
  EXPECT_THAT(
      result_.errors,
      HasSubstr("it sent an invalid message ([launch] expected an object with \"job\", got "));
  EXPECT_FALSE(anything_ran());
}

TEST_F(FakeFirstTask, CannotStartDaemonForAnotherHost) {
  const launch::DaemonFacts facts{.job = "1",
                                  .number = 1,
                                  .daemons = 2,
                                  .nodes = launch::runtime_here().nodes.empty() ? "" : "a,b",
                                  .uri = "1.0;tcp://192.0.2.77:4000",
                                  .processors = {0}};
  send_frames({frame(FrameKind::welcome, ""), frame(FrameKind::run, launch::to_text(facts))});
  EXPECT_EQ(result_.status, 4);
  EXPECT_THAT(
      result_.errors,
      HasSubstr("expected a contact address of this host, because the job has no secret, got "
                "192.0.2.77"));
  EXPECT_FALSE(anything_ran());
}

// ---- Impersonating an agent of mpirun

TEST_F(UnauthenticatedPeers, DoNotEndJobByInvalidCall) {
  const ScratchDirectory folder;
  std::filesystem::create_directories(folder.path());
  const std::string path = folder.path().string();
  std::ofstream(path + "/mpirun") << fmt::format(
      "#!/bin/sh\nprintf '%s' \"$LOCKSTEP_LAUNCH_AGENT\" >{0}/part; mv {0}/part {0}/agent\n"
      "while ! test -e {0}/done; do sleep 0.02; done\n",
      path);
  std::filesystem::permissions(path + "/mpirun", std::filesystem::perms::owner_all);
  Process first(with(fmt::format("PATH={}:{}", path, std::getenv("PATH")), task(0, {}, {"true"})));
  const net::Listener reachable("127.0.0.1", 0);
  net::Connection client = join({.rank = 1,
                                 .ranks = 2,
                                 .host = "b",
                                 .place = "b",
                                 .addresses = {"127.0.0.1"},
                                 .port = reachable.port()});
  ASSERT_TRUE(receives(client, FrameKind::probe));
  client.send({FrameKind::probed, "[]"});
  for (int look = 0; look < 1000 && !std::filesystem::exists(path + "/agent"); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  int port = 0;
  std::string token;
  std::ifstream(path + "/agent") >> port >> token;
  std::string why;
  FileDescriptor socket =
      net::connect_to("127.0.0.1", static_cast<std::uint16_t>(port), std::chrono::seconds(5), why);
  ASSERT_TRUE(net::authenticate(socket, JobSecret(token, "test"), net::kAgentPurpose,
                                std::chrono::seconds(20), why))
      << why;
  net::Connection agent(std::move(socket), launch::kFrameLimits);
  agent.send({FrameKind::call, R"(["b", "not a daemon"])"});
  EXPECT_TRUE(receives(agent, FrameKind::ended, "255"));
  EXPECT_TRUE(client.receive().empty()) << "nothing was started";
  std::ofstream(path + "/done").put('\n');
  EXPECT_TRUE(receives(client, FrameKind::leave, "[0,"));
  client.close("");
  const Result result = first.finish();
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("lockstep: warning: [launch] refused the call of an agent "
                                       "of mpirun: [launch] expected "));
}

// ---- With a secret

TEST_F(UnauthenticatedPeers, WithOtherSecretAreRejectedAtBothEnds) {
  const std::string mine = fmt::format("LOCKSTEP_JOB_SECRET={}", kSecret);
  Process first(with(mine, task(0, {"--timeout", "4"}, {"true"})));
  for (const Words& other :
       {with("LOCKSTEP_JOB_SECRET=another secret of a job", task(1, {"--timeout", "1"}, {"true"})),
        task(1, {"--timeout", "1"}, {"true"})}) {
    const Result second = run(other);
    EXPECT_EQ(second.status, 4);
    EXPECT_THAT(second.errors, HasSubstr("it does not know the secret of this job"));
  }
  const Result result = first.finish();
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(
      result.errors,
      AllOf(HasSubstr("missing rank 1; "),
            HasSubstr("were refused because they did not authenticate with the job's secret")));
}

TEST_F(UnauthenticatedPeers, SecretFileAuthenticatesTasks) {
  const ScratchDirectory directory;
  std::filesystem::create_directories(directory.path());
  const std::string file = (directory.path() / "secret").string();
  std::ofstream(file) << kSecret << "\n";
  ::chmod(file.c_str(), 0600);
  const Words command = shell("echo secret: $LOCKSTEP_JOB_SECRET$LOCKSTEP_JOB_SECRET_FILE");
  Process other(
      with(fmt::format("LOCKSTEP_JOB_SECRET={}", kSecret), task_elsewhere(1, {}, command)));
  const Result first =
      run(with(fmt::format("LOCKSTEP_JOB_SECRET_FILE={}", file), task_elsewhere(0, {}, command)));
  EXPECT_EQ(first.status, 0) << first.errors;
  EXPECT_EQ(first.output, "secret:\nsecret:\n") << "ranks do not need it";
  EXPECT_EQ(other.finish().status, 0);
  ::chmod(file.c_str(), 0644);
  const Result refused =
      run(with(fmt::format("LOCKSTEP_JOB_SECRET_FILE={}", file), task(0, {}, {"true"})));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("has mode 644"));
}

TEST_F(UnauthenticatedPeers, RendezvousRequiresSecret) {
  for (const int rank : {0, 1}) {
    Words words = task(rank, {}, {"true"});
    std::ranges::replace(words, std::string("MASTER_ADDR=127.0.0.1"),
                         std::string("MASTER_ADDR=192.0.2.77"));
    const Result result = run(words);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(
        result.errors,
        AllOf(HasSubstr("[launch] expected a secret of the job in LOCKSTEP_JOB_SECRET_FILE or "
                        "LOCKSTEP_JOB_SECRET, because its rendezvous at 192.0.2.77"),
              HasSubstr("export LOCKSTEP_JOB_SECRET_FILE=~/.lockstep-job-secret")));
  }
  const Result slurm =
      run({"env", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", LOCKSTEP_PROGRAM, "launch",
           "--rendezvous", fmt::format("192.0.2.77:{}", port_), "--", "true"});
  EXPECT_EQ(slurm.status, 2);
  EXPECT_THAT(slurm.errors,
              HasSubstr("before srun: export LOCKSTEP_JOB_SECRET=$(openssl rand -hex 16)"));
}

TEST_F(UnauthenticatedPeers, SingleHostJobRequiresNoSecret) {
  // The environment of torchrun for tasks of one host, with any host name.
  const auto line = [&](int rank) {
    Words words = with("LOCAL_WORLD_SIZE=2", task(rank, {}, {"true"}));
    std::ranges::replace(words, std::string("MASTER_ADDR=127.0.0.1"),
                         std::string("MASTER_ADDR=192.0.2.77"));
    return words;
  };
  Process other(line(1));
  const Result first = run(line(0));
  EXPECT_EQ(first.status, 0) << first.errors;
  EXPECT_EQ(other.finish().status, 0);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
