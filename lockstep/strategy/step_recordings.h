// Which steps are put on a stream kernel by kernel, which are recorded, and which are done again from a recording.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

namespace lockstep::strategy {

/// How a step is done. Where replicas disagree, the first of these that one of them needs is right for all.
enum class StepKind : std::uint8_t { plain, record, replay };

/// Recordings of steps, one for every number of samples: the ragged last batch of an epoch has one of its own. The
/// first steps of a number are put plainly, since they make plans and choose algorithms, which cannot be recorded.
class StepRecordings {
 public:
  /// Puts work on the stream.
  using Put = std::function<void()>;
  /// Records what `put` puts on the stream while it does it; the result does it again, whenever it is called.
  using Record = std::function<Put(const Put& put)>;
  /// What all replicas do where this one would do `mine`; collective.
  using Agree = std::function<StepKind(StepKind mine)>;

  static constexpr int kPlainSteps = 2;  ///< steps that are computed plainly before one is recorded

  /// With what records a step, and what makes replicas agree.
  StepRecordings(Record record, Agree agree) : record_(std::move(record)), agree_(std::move(agree)) {}

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
  Agree agree_;
  std::uint64_t placement_ = 0;
  std::map<std::int64_t, Shape> shapes_;
};

}  // namespace lockstep::strategy
