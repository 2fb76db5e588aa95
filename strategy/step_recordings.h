// Which steps are put on a stream kernel by kernel, which are recorded, and which are done again from a recording.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

namespace lockstep::strategy {

/// Recordings of steps, one for every number of samples: the ragged last batch of an epoch has one of its own. The
/// first steps of a number are put plainly, since they make plans and choose algorithms, which cannot be recorded.
class StepRecordings {
 public:
  /// Puts work on the stream.
  using Put = std::function<void()>;
  /// Records what `put` puts on the stream; the result puts it there once more, whenever it is called.
  using Record = std::function<Put(const Put& put)>;

  static constexpr int kPlainSteps = 2;

  explicit StepRecordings(Record record) : record_(std::move(record)) {}

  /// Does one step of `samples` samples, which `put` puts. `placement` changes when the memory that a step uses has
  /// moved: what was recorded before is of no use then.
  void run(std::int64_t samples, std::uint64_t placement, const Put& put);

  /// Forgets all of them.
  void clear() { shapes_.clear(); }

 private:
  struct Shape {
    int plain_steps = 0;
    Put replay;
  };

  Record record_;
  std::uint64_t placement_ = 0;
  std::map<std::int64_t, Shape> shapes_;
};

}  // namespace lockstep::strategy
