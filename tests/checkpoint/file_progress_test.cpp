// Long file operations count as progress, up to a limit.
#include "lockstep/checkpoint/files.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::checkpoint {
namespace {

std::uint64_t changes(const allreduce::Activity& activity) { return activity.state().changes; }

/// Waits until the activity has ticked `more` more times.
void wait_for_ticks(const allreduce::Activity& activity, std::uint64_t more) {
  const std::uint64_t before = changes(activity);
  while (changes(activity) < before + more) std::this_thread::yield();
}

TEST(FileProgress, ContinuesDuringALongOperation) {
  allreduce::Activity activity;
  const FileProgress progress(&activity);
  wait_for_ticks(activity, 3);
}

TEST(FileProgress, StopsIfAnOperationHangs) {
  allreduce::Activity activity;
  const FileProgress progress(&activity, std::chrono::milliseconds(0));
  const std::uint64_t before = changes(activity);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(350));  // more than three ticks of one that does not hang
  EXPECT_EQ(changes(activity), before);
  note_file_progress();
  EXPECT_EQ(changes(activity), before + 1);
}

TEST(FileProgress, EndsWithItsScope) {
  allreduce::Activity outer;
  allreduce::Activity inner;
  const FileProgress outer_progress(&outer, std::chrono::milliseconds(0));
  { const FileProgress of_inner(&inner, std::chrono::milliseconds(0)); }
  const std::uint64_t outer_before = changes(outer);
  const std::uint64_t inner_before = changes(inner);
  note_file_progress();
  EXPECT_EQ(changes(outer), outer_before + 1);
  EXPECT_EQ(changes(inner), inner_before);
}

TEST(FileProgress, NullSuspendsTheOuterScope) {
  note_file_progress();  // without any scope
  allreduce::Activity outer;
  const FileProgress outer_progress(&outer, std::chrono::milliseconds(0));
  const std::uint64_t before = changes(outer);
  {
    const FileProgress suspended(nullptr);
    note_file_progress();
  }
  EXPECT_EQ(changes(outer), before);
  note_file_progress();
  EXPECT_EQ(changes(outer), before + 1);
}

TEST(FileProgress, IsReportedForEachMebibyte) {
  const ScratchDirectory scratch;
  allreduce::Activity activity;
  const FileProgress progress(&activity, std::chrono::milliseconds(0));
  const std::string bytes(5 * kFileProgressBytes, 'x');
  for (const Destination destination : {Destination::synced, Destination::nowhere}) {
    const std::uint64_t before = changes(activity);
    HashedFile file(scratch.path() / "file", destination);
    file.write(bytes);
    EXPECT_GE(changes(activity), before + 5);
    file.finish();
  }
  const std::uint64_t before = changes(activity);
  digest_file(scratch.path() / "file");
  EXPECT_GE(changes(activity), before + 5);
}

}  // namespace
}  // namespace lockstep::inline v0::checkpoint
