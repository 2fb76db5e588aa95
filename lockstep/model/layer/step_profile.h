// The time of each piece of work of a training step, with its memory traffic and operations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/device/stream.h"
#include "lockstep/model/layer/layer.h"

namespace lockstep::inline v0::model {

/// The minimum work of a piece: each operand is moved once.
struct Work {
  std::int64_t bytes = 0;  ///< bytes read and written
  /// Multiplications and additions of products and convolutions; 0 for work that memory limits.
  std::int64_t flop = 0;
  std::string_view algorithm = {};  ///< Operation::algorithm()

  /// Adds both amounts; the algorithms may differ.
  Work& operator+=(const Work& other) {
    bytes += other.bytes;
    flop += other.flop;
    return *this;
  }
};

/// How fast a device is.
struct DeviceSpeed {
  double bytes_per_second = 0;  ///< bytes read and written
  double flop_per_second = 0;   ///< arithmetic of a matrix product
};

/// A piece of work of a step, or the whole step.
struct ProfiledPiece {
  std::string name;               ///< "conv2d forward", "dense weight gradient", "loss", "step"
  double milliseconds = 0;        ///< per step, median over the measured steps
  Work work = {};                 ///< per step; zeros for input and reduction, which are waits
  double floor_milliseconds = 0;  ///< minimum time of the work at the device's speed

  /// Floor over measured time; above 1 where operands stay in caches, or where an algorithm needs
  /// fewer operations than the definition.
  double share() const { return milliseconds > 0 ? floor_milliseconds / milliseconds : 0; }
};

/// The measured steps of a training, on one replica.
struct Profile {
  std::vector<ProfiledPiece> pieces;  ///< in the order of execution
  ProfiledPiece step;                 ///< the whole step; its work is the sum of the pieces
  std::int64_t steps = 0;             ///< number of measured steps
  std::int64_t samples = 0;           ///< samples of this replica per step
  DeviceSpeed speed;                  ///< speed of the replica's device
};

/// Parts of a layer that are timed separately.
enum class Part {
  forward,
  statistics,
  backward,
  gradient_sums,
  weight_gradient,
  data_gradient,
  recomputation,  ///< forward repeated in backward (Recompute)
};
/// "weight gradient"
std::string_view to_string(Part part);

/// Times the pieces of the steps of one replica: with events on the stream of a GPU, with the clock
/// on a CPU. A piece begins where the one before it ends. Only full batches count.
class StepProfile {
 public:
  static constexpr int kWarmUpSteps = 5;   ///< not measured
  static constexpr int kMaxSteps = 1'000;  ///< measured steps; later ones are not timed

  /// `stream` is that of the replica's model and must outlive this object.
  explicit StepProfile(device::Stream& stream) : stream_(stream) {}

  /// Begins a step of `samples` samples, for which the replica waited `input_seconds`, which counts
  /// as its first piece. Returns whether the step is timed; if not, the other functions must not be
  /// called.
  bool begin_step(std::int64_t samples, double input_seconds);
  /// Ends a piece of work. Pieces of one name within a step (of micro-batches) are added. `name`
  /// stays valid until the end of the step.
  void end(std::string_view name, const Work& work);
  /// Ends a part of the current layer.
  void end(Part part);
  /// The last part of the current layer that has ended; null if none.
  const Part* last_part() const;
  /// Ends the current layer: its parts are named `layer` and the part, and do `work`.
  void end_layer(std::string_view layer, const std::function<Work(Part)>& work);
  /// Ends the step. Its work is complete.
  void end_step();

  /// Number of measured steps.
  std::int64_t steps() const { return static_cast<std::int64_t>(step_seconds_.size()); }
  /// The medians, with the minimum times on a device of this speed.
  Profile result(const DeviceSpeed& speed) const;

 private:
  struct Lap {
    device::Event end;
    std::string_view name;
    bool is_part = false;
    Part part = {};
    Work work = {};
  };
  struct Piece {
    std::string name;
    Work work = {};
    double seconds = 0;                // in the current step
    std::vector<double> step_seconds;  // in each measured step
  };
  Piece& piece(const std::string& name);

  device::Stream& stream_;
  std::int64_t begun_ = 0;
  std::int64_t samples_ = 0;
  double input_seconds_ = 0;
  std::vector<Lap> laps_;       // laps of the current step; the first marks its beginning
  std::size_t layer_laps_ = 0;  // index of the first lap of the current layer
  std::vector<Piece> pieces_;
  std::map<std::string, std::size_t> piece_indices_;
  std::vector<double> step_seconds_;
};

/// Ends a part of an operation, if its pass is profiled.
inline void end_part(const PassContext& pass, Part part) {
  if (pass.profile != nullptr) pass.profile->end(part);
}

}  // namespace lockstep::inline v0::model
