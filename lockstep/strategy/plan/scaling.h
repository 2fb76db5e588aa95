// A model of synchronous data-parallel training: from the times of one replica and the speed of a
// link to the time of a step of N replicas.
//
// How it works. A step of a replica computes for as long as one replica alone with the same number
// of samples, which a Calibration has measured for several numbers. In its backward pass, gradients
// become ready at measured times, and the buckets of them (allreduce::plan_buckets) are sent one
// after the other; the last one has nothing to overlap with (docs/algorithms.md, "Buckets and
// overlap"). Between hosts a bucket of S bytes takes 2 (m - 1) α + 2 (m - 1)/m · S / B on a ring of
// m hosts (Patarasuk and Yuan, 2009), or that of recursive doubling if it is small; within a host,
// replicas read and write n · S bytes of memory each way, without overlap unless they are GPUs.
// Sending costs the processor time, too: if no core is idle, the computation is slower meanwhile.
// All replicas then wait for the slowest one: the expected maximum of N normal variables with the
// measured deviation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/reduction.h"

namespace lockstep::strategy {

/// An idle core sends gradients while the others compute: one of which at least this share is free.
inline constexpr double kIdleShare = 0.7;

/// A step of one replica alone.
struct BatchTiming {
  std::int64_t samples = 0;   ///< in the step
  double seconds = 0;         ///< of the step, without waiting for input; median
  double deviation = 0;       ///< standard deviation of the steps, from their quartiles
  double input_seconds = 0;   ///< waiting for input before the step; mean
  double update_seconds = 0;  ///< part of `seconds` after the last gradient
  /// For each trained parameter, in the order of the backward pass: seconds from its gradient to
  /// the end of the backward pass.
  std::vector<double> lead_seconds = {};
  double activation_bytes = 0;  ///< memory of activations and workspaces
};

/// What was measured on one machine.
struct Calibration {
  std::string model;                   ///< name of the network
  std::string data;                    ///< description of the data set
  std::string machine;                 ///< host and processor, or GPU
  std::string precision = "float32";   ///< of the computation
  std::vector<std::int64_t> elements;  ///< of each trained parameter, in order
  double parameter_bytes = 0;          ///< memory of parameters and statistics
  double gradient_bytes = 0;           ///< memory of gradients
  double slot_bytes = 0;               ///< memory of optimizer slots
  std::int64_t records = 0;            ///< in the data set
  double cores = 1;       ///< processors that the process may use, with quotas of its group
  double busy_cores = 1;  ///< processors in use during a step; 0 for a GPU
  /// Time of a replica's processors to send and receive one byte between hosts.
  double transfer_seconds_per_byte = 0;
  double bytes_per_second = 0;       ///< of the device's memory (model::DeviceSpeed)
  double flop_per_second = 0;        ///< of the device in products
  std::vector<BatchTiming> timings;  ///< ascending in `samples`; at least one

  /// The timing of a step of `samples`, between or beyond the measured ones by a straight line.
  BatchTiming at(double samples) const;
  bool is_gpu() const { return busy_cores == 0; }  ///< which computes without the host's cores
  /// Whether each of `replicas` of a host has an idle core.
  bool has_idle_core(int replicas) const { return cores / replicas >= busy_cores + kIdleShare; }
  /// Whether `samples` is within the measured ones.
  bool covers(double samples) const;
};

/// Machines and the network between them.
struct Hardware {
  std::string name = "hosts like the calibrated machine";  ///< for the output
  double speed = 1;                ///< of computation, relative to the calibrated machine
  double bits_per_second = 1e9;    ///< of each host's link, in each direction
  double latency_seconds = 50e-6;  ///< α: of a message between hosts, software included
  int replicas_per_host = 1;       ///< they share the link
  /// Of memory, or of all links between GPUs of a host together; 0: that of the calibration.
  double host_bytes_per_second = 0;
  double transfer_cost = 1;  ///< relative to Calibration::transfer_seconds_per_byte
  double memory_bytes = 0;   ///< of a replica; 0: unknown
  double price = 0;          ///< of a host for an hour, in any currency
};

/// Share of a link's bits that are payload of TCP over Ethernet: 955 of 1000 Mbit/s were measured
/// (docs/algorithms.md).
inline constexpr double kPayload = 0.955;

/// How a training uses replicas.
struct ScalingOptions {
  std::int64_t global_batch = 64;         ///< of one replica if `weak`
  bool weak = false;                      ///< the global batch grows with the number of replicas
  allreduce::BucketOptions buckets = {};  ///< as TrainerOptions::buckets
  double samples = 0;                     ///< of the whole training; 0: unknown
};

/// The step of N replicas, in seconds.
struct Prediction {
  int replicas = 1;               ///< over all hosts
  int hosts = 1;                  ///< that they are on
  std::int64_t global_batch = 0;  ///< samples of a step over all replicas
  double per_replica_batch = 0;   ///< the largest of the replicas
  bool is_covered = true;         ///< whether the calibration measured such a batch
  double input = 0;               ///< waiting for input
  double compute = 0;             ///< forward and backward
  double transfer = 0;            ///< the computation is slower while gradients are sent
  double communication = 0;       ///< exposed: nothing is computed
  double waiting = 0;             ///< for the slowest replica
  double update = 0;              ///< optimizer and the rest of the step
  double link_seconds = 0;        ///< for which a link is busy, overlapped or not
  double memory_bytes = 0;        ///< of a replica
  double samples_per_second = 0;  ///< over all replicas
  double efficiency = 1;          ///< samples/s over N times those of one replica
  double hours = 0;               ///< of the whole training; 0: unknown
  double cost = 0;                ///< of the whole training

  /// Duration of the step: the sum of its parts.
  double step() const { return input + compute + transfer + communication + waiting + update; }
};

/// The step of `replicas`, at least 1.
Prediction predict(const Calibration& calibration, const Hardware& hardware,
                   const ScalingOptions& options, int replicas);

/// Seconds in which a ring of `hosts`, or recursive doubling for small buffers, sums `bytes`.
double reduction_seconds(double bytes, int hosts, const Hardware& hardware);

/// Expected maximum of `count` independent standard normal variables.
double expected_maximum(int count);

/// A bucket on its way.
struct SentBucket {
  double ready = 0;      ///< seconds of computation until it is complete
  double link = 0;       ///< seconds on the link
  double processor = 0;  ///< seconds of the processor
};
/// The end of a computation whose buckets are sent meanwhile.
struct Overlap {
  double slowed = 0;   ///< seconds by which sending delays the end of the computation
  double exposed = 0;  ///< seconds from that end until all buckets are sent
};
/// Sends `buckets` in order during `compute` seconds of computation. Without an idle core, the
/// processor's part of sending is taken from the computation.
Overlap overlap(const std::vector<SentBucket>& buckets, double compute, bool has_idle_core);

}  // namespace lockstep::strategy
