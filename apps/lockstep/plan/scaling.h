// A model of synchronous data-parallel training. Predicts the step time of N replicas from the
// times of one replica and the speed of the links.
//
// How it works. The computation of a step takes as long as on a single replica with the same number
// of samples, which a Calibration has measured for several numbers. In the backward pass, gradients
// become ready at measured times, and their buckets (allreduce::plan_buckets) are sent one after
// the other. The last bucket does not overlap with computation (docs/algorithms.md, "Buckets and
// overlap"). Between hosts a bucket of S bytes takes 2 (m - 1) α + 2 (m - 1)/m · S / B on a ring of
// m hosts (Patarasuk and Yuan, 2009), or the time of recursive doubling if it is small. Within a
// host, replicas read and write n · S bytes of memory each way, without overlap unless they are
// GPUs. Sending also uses processor time: if no core is idle, it slows down the computation.
// Finally all replicas wait for the slowest one: the expected maximum of N normal variables with
// the measured deviation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"

namespace lockstep::inline v0::apps {

/// A core counts as idle, and sends gradients during computation, if at least this share of it is
/// free.
inline constexpr double kIdleShare = 0.7;

/// Times of a step of a single replica.
struct BatchTiming {
  std::int64_t samples = 0;   ///< samples per step
  double seconds = 0;         ///< median duration without waiting for input
  double deviation = 0;       ///< standard deviation, from the quartiles
  double input_seconds = 0;   ///< waiting for input before the step; mean
  double update_seconds = 0;  ///< part of `seconds` after the last gradient
  /// For each trained parameter, in the order of the backward pass: seconds from the completion of
  /// its gradient to the end of the backward pass.
  std::vector<double> lead_seconds = {};
  double activation_bytes = 0;  ///< memory of activations and workspaces
};

/// Measurements on one machine.
struct Calibration {
  std::string model;                   ///< name of the network
  std::string data;                    ///< description of the data set
  std::string machine;                 ///< host and processor, or GPU
  std::string precision = "float32";   ///< data type of the computation
  std::vector<std::int64_t> elements;  ///< size of each trained parameter, in order
  double parameter_bytes = 0;          ///< memory of parameters and statistics
  double gradient_bytes = 0;           ///< memory of gradients
  double slot_bytes = 0;               ///< memory of optimizer slots
  std::int64_t records = 0;            ///< number of records in the data set
  double cores = 1;                    ///< processors that the process may use; may be fractional
  double busy_cores = 1;               ///< processors in use during a step; 0 for a GPU
  /// Processor seconds of a replica to send and receive one byte between hosts.
  double transfer_seconds_per_byte = 0;
  double bytes_per_second = 0;       ///< memory bandwidth (model::DeviceSpeed)
  double flop_per_second = 0;        ///< speed of matrix products
  std::vector<BatchTiming> timings;  ///< ascending in `samples`; at least one

  /// Returns the timing of a step of `samples`, by linear interpolation or extrapolation.
  BatchTiming at(double samples) const;
  bool is_gpu() const { return busy_cores == 0; }  ///< whether a GPU was measured
  /// Whether each of `replicas` on a host has an idle core.
  bool has_idle_core(int replicas) const { return cores / replicas >= busy_cores + kIdleShare; }
  /// Whether `samples` is within the measured range.
  bool covers(double samples) const;
};

/// Machines and the network between them.
struct Hardware {
  std::string name = "hosts like the calibrated machine";  ///< name in the output
  double speed = 1;                ///< computing speed relative to the calibrated machine
  double bits_per_second = 1e9;    ///< bandwidth of each host's link, per direction
  double latency_seconds = 50e-6;  ///< latency α of a message between hosts, with software
  int replicas_per_host = 1;       ///< replicas that share a link
  /// Bandwidth of the memory, or of all links between the GPUs of a host; 0: as calibrated.
  double host_bytes_per_second = 0;
  double transfer_cost = 1;  ///< factor on Calibration::transfer_seconds_per_byte
  double memory_bytes = 0;   ///< memory per replica; 0: unknown
  double price = 0;          ///< price per host and hour, in any currency
};

/// Share of a link's bits that are payload of TCP over Ethernet: 955 of 1000 Mbit/s were measured
/// (docs/algorithms.md).
inline constexpr double kPayload = 0.955;

/// The training to predict.
struct ScalingOptions {
  std::int64_t global_batch = 64;         ///< samples per step; per replica if `weak`
  bool weak = false;                      ///< the global batch grows with the number of replicas
  allreduce::BucketOptions buckets = {};  ///< see TrainerOptions::buckets
  double samples = 0;                     ///< samples of the training; 0: unknown
};

/// The predicted step of N replicas. Durations are in seconds.
struct Prediction {
  int replicas = 1;               ///< replicas on all hosts
  int hosts = 1;                  ///< hosts of these replicas
  std::int64_t global_batch = 0;  ///< samples per step over all replicas
  double per_replica_batch = 0;   ///< maximum over the replicas
  bool is_covered = true;         ///< whether the calibration measured such a batch
  double input = 0;               ///< waiting for input
  double compute = 0;             ///< forward and backward
  double transfer = 0;            ///< delay of the computation by sending gradients
  double communication = 0;       ///< exposed communication
  double waiting = 0;             ///< waiting for the slowest replica
  double update = 0;              ///< optimizer and the rest of the step
  double link_seconds = 0;        ///< busy time of a link, overlapped or not
  double memory_bytes = 0;        ///< memory per replica
  double samples_per_second = 0;  ///< over all replicas
  double efficiency = 1;          ///< samples/s over N times those of one replica
  double hours = 0;               ///< duration of the training; 0: unknown
  double cost = 0;                ///< cost of the training

  /// Duration of the step: the sum of its parts.
  double step() const { return input + compute + transfer + communication + waiting + update; }
};

/// Predicts the step of `replicas`, at least 1.
Prediction predict(const Calibration& calibration, const Hardware& hardware,
                   const ScalingOptions& options, int replicas);

/// Returns the seconds that a ring of `hosts`, or recursive doubling for small buffers, takes to
/// sum `bytes`.
double reduction_seconds(double bytes, int hosts, const Hardware& hardware);

/// Returns the expected maximum of `count` independent standard normal variables.
double expected_maximum(int count);

/// A bucket to send.
struct SentBucket {
  double ready = 0;      ///< seconds of computation until the bucket is complete
  double link = 0;       ///< seconds on the link
  double processor = 0;  ///< processor seconds
};
/// The effect of sending buckets during a computation.
struct Overlap {
  double slowed = 0;   ///< delay of the end of the computation in seconds
  double exposed = 0;  ///< seconds from then until all buckets are sent
};
/// Simulates sending `buckets` in order during `compute` seconds of computation. Without an idle
/// core, the processor time of sending delays the computation.
Overlap overlap(const std::vector<SentBucket>& buckets, double compute, bool has_idle_core);

}  // namespace lockstep::inline v0::apps
