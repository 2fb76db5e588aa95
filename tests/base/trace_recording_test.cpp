#include "lockstep/base/trace/recording.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/partial_trace.h"
#include "tests/support/files.h"

namespace lockstep::inline v0::trace {
namespace {

using ::testing::HasSubstr;

/// Recordings go to a directory of the test, and temporary ones below another.
class TraceRecording : public ::testing::Test {
 protected:
  TraceRecording() {
    for (auto& [name, before] : before_)
      if (const char* const value = ::getenv(name)) before = value;
    ::setenv("TMPDIR", scratch_.path().c_str(), 1);
    ::unsetenv("XDG_RUNTIME_DIR");
    set_recorded_rank({.job = "host-1", .host = "host", .rank = 2, .ranks = 4});
    set_recording_directory(directory());
    std::filesystem::create_directory(directory());
  }
  ~TraceRecording() override {
    for (const auto& [name, before] : before_)
      if (before.empty())
        ::unsetenv(name);
      else
        ::setenv(name, before.c_str(), 1);
    set_recording_directory({});
    set_recorded_rank({});
    set_step(0);
    set_partial_trace({}, nullptr, nullptr);
    describe_buckets({});
  }

  std::filesystem::path directory() const { return scratch_.path() / "run"; }

  std::string error_of(const std::string& text) const {
    const std::filesystem::path file = scratch_.path() / "file.jsonl";
    std::ofstream(file) << text;
    try {
      read_recording(file);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const files::TemporaryDirectory scratch_;
  std::map<const char*, std::string> before_ = {{"TMPDIR", ""}, {"XDG_RUNTIME_DIR", ""}};
};

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(TraceRecording, RoundTrips) {
  describe_buckets({"fc2 .. fc1", "the step's report"});
  set_step(100);
  std::thread([] {
    name_thread("of a recording", 1);
    record(EventKind::begin, "all_reduce", 3, 77);
    record(EventKind::lap, intern("a \"quoted\" layer"));
  }).join();
  const std::filesystem::path path = write_recording("a reason");
  EXPECT_EQ(path, directory() / "recorder-2.jsonl");
  const Recording read = read_recording(path);
  EXPECT_EQ(read.rank.job, "host-1");
  EXPECT_EQ(read.rank.host, "host");
  EXPECT_EQ(read.rank.rank, 2);
  EXPECT_EQ(read.rank.ranks, 4);
  EXPECT_EQ(read.reason, "a reason");
  EXPECT_EQ(read.process, ::getpid());
  EXPECT_EQ(read.step, 100);
  EXPECT_EQ(read.buckets.size(), 2U);
  EXPECT_FALSE(read.is_cut_off);
  const auto thread = std::ranges::find(read.threads, "of a recording 1", &ThreadEvents::thread);
  ASSERT_NE(thread, read.threads.end());
  ASSERT_EQ(thread->events.size(), 2U);
  EXPECT_EQ(thread->events[0].kind, EventKind::begin);
  EXPECT_EQ(thread->events[0].number, 3);
  EXPECT_EQ(thread->events[0].sequence, 77U);
  EXPECT_EQ(thread->events[0].step, 100);
  EXPECT_STREQ(thread->events[1].name, "a \"quoted\" layer");
  EXPECT_GT(read.time, thread->events[1].time);
}

TEST_F(TraceRecording, FallsBackToATemporaryDirectoryOfTheJob) {
  set_recording_directory(scratch_.path() / "not there");
  const std::filesystem::path path = write_recording("a reason");
  EXPECT_EQ(path, temporary_recordings() / "host-1" / "recorder-2.jsonl");
  struct stat status = {};
  ASSERT_EQ(::stat(temporary_recordings().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
}

TEST_F(TraceRecording, WritesANoteForItsProcess) {
  note_process("host-1", {});
  ASSERT_EQ(noted_processes(temporary_recordings()).size(), 1U);
  EXPECT_EQ(noted_processes(temporary_recordings())[0].recording, "");
  write_recording("a reason");
  const std::vector<RecordedProcess> noted = noted_processes(temporary_recordings());
  ASSERT_EQ(noted.size(), 1U);
  EXPECT_EQ(noted[0].process, ::getpid());
  EXPECT_EQ(noted[0].job, "host-1");
  EXPECT_EQ(noted[0].recording, directory() / "recorder-2.jsonl");
  remove_process_note();
  EXPECT_TRUE(noted_processes(temporary_recordings()).empty());
}

TEST_F(TraceRecording, IsRemovedAfterAWeek) {
  write_recording("a reason");
  const std::filesystem::path old = temporary_recordings() / "job";
  std::filesystem::create_directory(old);
  std::filesystem::last_write_time(
      old, std::filesystem::file_time_type::clock::now() - std::chrono::days(8));
  write_recording("a reason");
  EXPECT_FALSE(std::filesystem::exists(old));
}

TEST_F(TraceRecording, KeepsTheNoteOfALongRunningProcess) {
  note_process("host-1", {});  // creates the directory
  const pid_t child = ::fork();
  if (child == 0) {
    note_process("host-1", {});
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  const auto note_of = [](pid_t process) {
    return temporary_recordings() / ("pid-" + std::to_string(process));
  };
  const std::filesystem::path gone = note_of(2147483647);
  const std::string text = contents_of(note_of(child));
  std::ofstream(gone) << text;
  // The ID of a running process with another start time.
  std::ofstream(note_of(1)) << text;
  for (const auto& note : std::filesystem::directory_iterator(temporary_recordings()))
    std::filesystem::last_write_time(
        note.path(), std::filesystem::file_time_type::clock::now() - std::chrono::days(20));
  EXPECT_EQ(noted_processes(temporary_recordings()).size(), 2U);
  note_process("host-2", {});
  EXPECT_TRUE(std::filesystem::exists(note_of(child)));
  EXPECT_FALSE(std::filesystem::exists(note_of(1)));
  EXPECT_FALSE(std::filesystem::exists(gone));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(TraceRecording, RejectsADirectoryThatIsALink) {
  set_recording_directory({});
  std::filesystem::create_directory_symlink(directory(), temporary_recordings());
  EXPECT_THROW(write_recording("a reason"), Error);
  EXPECT_TRUE(std::filesystem::is_empty(directory()));
  EXPECT_EQ(why_not_private(temporary_recordings(), ::geteuid()), "Not a directory");

  // The system creates another directory of the user at login.
  const std::filesystem::path runtime = scratch_.path() / "runtime";
  std::filesystem::create_directory(runtime);
  ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  EXPECT_EQ(write_recording("a reason").parent_path().parent_path(),
            runtime / fmt::format("lockstep-recorder-{}", ::geteuid()));
  std::filesystem::remove(scratch_.path() / fmt::format("lockstep-recorder-{}", ::geteuid()));
  EXPECT_EQ(temporary_recordings().parent_path(), scratch_.path()) << "the first choice";
}

TEST_F(TraceRecording, DirectoryOfOneUserIsNotPrivateToAnother) {
  const std::filesystem::path own = scratch_.path() / "own";
  EXPECT_EQ(why_not_private(own, ::geteuid()), "") << "nothing there yet";
  make_private_directory(own);
  EXPECT_EQ(why_not_private(own, ::geteuid()), "");
  EXPECT_EQ(why_not_private(own, ::geteuid() + 1),
            fmt::format("it belongs to the user {}", ::geteuid()));
  ASSERT_EQ(::chmod(own.c_str(), 0770), 0);
  EXPECT_EQ(why_not_private(own, ::geteuid()), "its group may write it");
}

TEST_F(TraceRecording, OfAFailureIsWrittenOncePerTraining) {
  set_step(0);
  EXPECT_EQ(write_recording_of_failure("too early"), "");
  set_step(1);
  EXPECT_EQ(write_recording_of_failure("the cause"), directory() / "recorder-2.jsonl");
  EXPECT_EQ(write_recording_of_failure("a consequence"), "");
  EXPECT_EQ(read_recording(directory() / "recorder-2.jsonl").reason, "the cause");
  set_recording_directory(directory());
  EXPECT_NE(write_recording_of_failure("of the next training"), "");
}

TEST_F(TraceRecording, OfAFailureIncludesThePartialTrace) {
  set_step(1);
  const std::filesystem::path file = scratch_.path() / "trace.json";
  int taken = 0;
  set_partial_trace(
      partial_trace_file(file, 2, 4),
      [&] {
        ++taken;
        return RankTrace{.rank = 2, .host = "h", .clock = {}, .threads = {}};
      },
      write_chrome_trace);
  const std::filesystem::path recording = write_recording_of_failure("the cause");
  const std::filesystem::path part = scratch_.path() / "trace.rank-2.json";
  EXPECT_THAT(recording_hint(recording), HasSubstr("; the incomplete trace is in " + part.string() +
                                                   "; those of other ranks"));
  EXPECT_THAT(contents_of(part), HasSubstr("rank 2 on h"));
  start_partial_trace();
  EXPECT_EQ(taken, 1);
}

TEST_F(TraceRecording, HasNoTraceIfItIsCompleteOrCannotBeWritten) {
  set_step(1);
  const std::filesystem::path part = scratch_.path() / "trace.json";
  set_partial_trace(
      part, [] { return std::nullopt; }, write_chrome_trace);
  start_partial_trace();
  EXPECT_EQ(finish_partial_trace(), "");
  set_partial_trace(
      part, [] { return RankTrace(); }, write_chrome_trace);
  set_partial_trace({}, nullptr, nullptr);
  start_partial_trace();
  EXPECT_EQ(finish_partial_trace(), "");
  set_partial_trace(
      scratch_.path() / "missing" / "trace.json", [] { return RankTrace(); }, write_chrome_trace);
  EXPECT_THAT(recording_hint(write_recording_of_failure("the cause")),
              ::testing::Not(HasSubstr("traced")));
  EXPECT_FALSE(std::filesystem::exists(part));
}

TEST(PartialTraceFile, IsTheTraceItselfForOneRank) {
  EXPECT_EQ(partial_trace_file("a/t.pftrace", 0, 1), "a/t.pftrace");
  EXPECT_EQ(partial_trace_file("a/t.pftrace", 3, 4), "a/t.rank-3.pftrace");
  EXPECT_EQ(partial_trace_file("t", 1, 2), "t.rank-1");
}

TEST_F(TraceRecording, OmitsAnIncompleteLine) {
  record(EventKind::mark, "last");
  const std::filesystem::path path = write_recording("a reason");
  const std::string whole = contents_of(path);
  std::ofstream(path) << whole.substr(0, whole.size() - 5);
  EXPECT_TRUE(read_recording(path).is_cut_off);
}

TEST_F(TraceRecording, EscapesControlCharactersOfItsFile) {
  const std::filesystem::path file = scratch_.path() / "file.jsonl";
  std::ofstream(file) << "{\"recorder\":1,\"job\":\"a\\u001b[2Jb\"}\n"
                      << "{\"t\":1,\"thread\":\"x\\u0007\",\"name\":\"y\\n\"}\n";
  const Recording read = read_recording(file);
  EXPECT_EQ(read.rank.job, "a\\x1b[2Jb");
  ASSERT_EQ(read.threads.size(), 1U);
  EXPECT_EQ(read.threads[0].thread, "x\\x07");
  EXPECT_STREQ(read.threads[0].events[0].name, "y\\n");
}

TEST_F(TraceRecording, RejectsOtherFiles) {
  EXPECT_THAT(error_of(""), HasSubstr("expected a recording, got an empty file"));
  EXPECT_THAT(error_of("{\"recorder\":2}\n"), HasSubstr("expected a recording of version 1"));
  EXPECT_THAT(error_of("{\"event\":\"start\"}\n"), HasSubstr("expected a recording of version 1"));
  EXPECT_THAT(error_of("[1]\n"), HasSubstr("line 1] expected a recording of version 1"));
  EXPECT_THAT(error_of("\x01\x02"), HasSubstr("line 1] expected JSON"));
  EXPECT_THAT(error_of("{\"recorder\":1,\"job\":\"j\",\"rank\":\"two\"}\n"),
              HasSubstr("line 1] expected a line of a recording; its \"rank\" is \"two\", not an "
                        "integer"));
  EXPECT_THAT(error_of("{\"recorder\":1,\"job\":\"j\"}\n7\n"), HasSubstr("line 2] expected"));
  EXPECT_THAT(error_of("{\"recorder\":1,\"job\":\"j\"}\n{\"t\":\"soon\"}\n"),
              HasSubstr("line 2] expected a line of a recording"));
}

}  // namespace
}  // namespace lockstep::inline v0::trace
