#include "apps/lockstep/plan/calibrate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/model/compiled/device_speed.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/net/socket.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/replica/micro_batches.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr std::size_t kFewestSteps = 5;  // timed steps per batch
constexpr int kProfiledSteps = 3;
constexpr int kLeadPasses = 3;

/// Returns the value below which `share` of `values`, which must not be empty, lie.
double quantile(std::vector<double> values, double share) {
  const auto place = values.begin() + std::lround(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, place);
  return *place;
}

/// Measures the steps of one batch size.
class Measurement {
 public:
  Measurement(strategy::Replica& replica, const strategy::LocalReplicas& replicas,
              const strategy::TrainerOptions& options, data::BatchStream& stream, bool has_gpu,
              std::int64_t samples)
      : replica_(replica),
        network_(replicas.network()),
        loss_(replicas.loss()),
        options_(options),
        stream_(stream),
        has_gpu_(has_gpu) {
    timing_.samples = samples;
  }

  BatchTiming run(double seconds) {
    const auto begin = std::chrono::steady_clock::now();
    measure_update();
    measure_leads();
    std::vector<double> steps;
    double waited = 0;
    const double processor_before = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const auto timed_from = std::chrono::steady_clock::now();
    while (steps.size() < kFewestSteps || seconds_since(begin) < seconds) {
      const Step step = next_step();
      if (!step.is_whole) continue;
      steps.push_back(step.seconds);
      waited += step.waited;
    }
    busy_ = (processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - processor_before) /
            seconds_since(timed_from);
    timing_.seconds = quantile(steps, 0.5);
    constexpr double kQuartilesOfNormal = 1.349;  // interquartile range in standard deviations
    timing_.deviation = (quantile(steps, 0.75) - quantile(steps, 0.25)) / kQuartilesOfNormal;
    timing_.input_seconds = waited / static_cast<double>(steps.size());
    timing_.update_seconds = std::min(timing_.update_seconds, timing_.seconds);
    timing_.activation_bytes = static_cast<double>(replica_.model().memory().activations);
    return timing_;
  }
  double busy() const { return busy_; }  ///< processors in use during the timed steps

 private:
  struct Step {
    double seconds = 0;
    double waited = 0;
    bool is_whole = true;  // not the smaller last batch of an epoch
  };

  Step next_step() {
    const double waited_before = stream_.seconds_waited();
    const bool staged = has_next_;
    if (staged)
      std::swap(parts_, next_parts_);
    else
      LOCKSTEP_CHECK(stream_.next(parts_));
    has_next_ = has_gpu_ && stream_.next_if_ready(next_parts_);
    const double waited = stream_.seconds_waited() - waited_before;
    const strategy::StepRequest request{.seed = options_.seed,
                                        .step = steps_,
                                        .update = ++steps_,
                                        .learning_rate = 0,
                                        .input_seconds = waited,
                                        .staged = staged};
    const auto begin = std::chrono::steady_clock::now();
    replica_.train_step(parts_.front(), request, has_next_ ? &next_parts_.front() : nullptr);
    return {.seconds = seconds_since(begin),
            .waited = waited,
            .is_whole = parts_.front().samples == timing_.samples};
  }

  /// Also warms up caches.
  void measure_update() {
    model::StepProfile profile(replica_.model().backend().stream());
    replica_.set_profile(&profile);
    try {
      while (profile.steps() < kProfiledSteps) next_step();
    } catch (...) {
      replica_.set_profile(nullptr);
      throw;
    }
    replica_.set_profile(nullptr);
    for (const model::ProfiledPiece& piece : profile.result({}).pieces)
      if (piece.name == "update") timing_.update_seconds = 1e-3 * piece.milliseconds;
  }

  /// Passes over the last micro-batch of a whole step, whose gradients are not used.
  void measure_leads() {
    while (!next_step().is_whole) {
    }
    strategy::MicroBatches micro_batches(network_, options_.accumulate, 0, loss_);
    const data::Batch& part = parts_.front();
    const std::int64_t number = micro_batches.count(part) - 1;
    const std::int64_t samples = micro_batches.range(part, number).size();
    const model::StepContext context{.seed = options_.seed,
                                     .step = steps_,
                                     .first_sample = micro_batches.first_sample(part, number),
                                     .global_samples = part.global_samples};
    model::CompiledModel& model = replica_.model();
    device::Stream& stream = model.backend().stream();
    const std::size_t parameters = model.trained_table().entries().size();
    std::vector<std::vector<double>> leads(parameters);
    for (int pass = 0; pass < kLeadPasses; ++pass) {
      std::vector<std::optional<device::Event>> ready(parameters);
      model.train_loaded(samples, context, loss_, false, [&](std::size_t parameter) {
        ready[parameter].emplace(stream.record_timed());
      });
      const device::Event end = stream.record_timed();
      end.synchronize();
      for (std::size_t i = 0; i < parameters; ++i)
        if (ready[i]) leads[i].push_back(std::max(0.0, end.seconds_since(*ready[i])));
    }
    for (const std::vector<double>& parameter_leads : leads)
      timing_.lead_seconds.push_back(parameter_leads.empty() ? 0 : quantile(parameter_leads, 0.5));
  }

  strategy::Replica& replica_;
  const model::Network& network_;
  const model::TotalLoss& loss_;
  const strategy::TrainerOptions& options_;
  data::BatchStream& stream_;
  bool has_gpu_;
  BatchTiming timing_;
  std::vector<data::Batch> parts_;
  std::vector<data::Batch> next_parts_;
  bool has_next_ = false;
  std::int64_t steps_ = 0;
  double busy_ = 0;
};

[[noreturn]] void refuse_connection() {
  throw Error(ErrorCategory::communication, "calibration",
              "expected a TCP connection of this host to itself",
              "got " + std::generic_category().message(errno));
}

/// Returns the two blocking ends of a connection of this host to itself.
std::pair<FileDescriptor, FileDescriptor> connected_pair() {
  const net::Listener listener("127.0.0.1", 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(listener.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FileDescriptor sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!sender.is_open() ||
      ::connect(sender.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    refuse_connection();
  FileDescriptor receiver = listener.accept();  // pending, since connect() has returned
  if (!receiver.is_open() || ::fcntl(receiver.get(), F_SETFL, 0) != 0) refuse_connection();
  return {std::move(sender), std::move(receiver)};
}

std::string machine_of(const strategy::Strategy& strategy) {
  const device::Device device = strategy.device(0);
  return device.kind == device::DeviceKind::gpu
             ? fmt::format("{}, {}", host_name(), to_string(device))
             : fmt::format("{}, {}", host_name(), cpu_name());
}

}  // namespace

std::vector<std::int64_t> batches_to_measure(std::int64_t global_batch, int most, bool weak) {
  std::set<std::int64_t> batches{global_batch};
  for (std::int64_t count = 2; count < 2 * static_cast<std::int64_t>(most); count *= 2) {
    batches.insert((global_batch + count - 1) / count);
    if (weak) break;
  }
  return {batches.begin(), batches.end()};
}

double measure_transfer(double cores) {
  // The ring used 1.4 ns of a core per byte (docs/performance.md, two hosts of one core), but such
  // a connection 0.3 to 0.6 ns: MPI copies and polls, packets are smaller than within a host, and
  // sums are computed.
  constexpr double kRing = 3;
  constexpr std::size_t kBytes = std::size_t{96} << 20;
  constexpr std::size_t kPiece = std::size_t{256} << 10;
  const auto [sender, receiver] = connected_pair();
  std::vector<char> to_send(16 * kPiece, 1);
  std::vector<char> received(16 * kPiece);
  const double processor_before = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
  const auto begin = std::chrono::steady_clock::now();
  {
    const std::jthread sending([&, descriptor = sender.get()] {
      for (std::size_t sent = 0; sent < kBytes;) {
        const std::size_t place = sent % to_send.size();
        const ssize_t count = ::send(descriptor, &to_send[place],
                                     std::min(kPiece, to_send.size() - place), MSG_NOSIGNAL);
        if (count <= 0 && errno != EINTR) break;
        sent += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      }
      ::shutdown(descriptor, SHUT_WR);
    });
    std::size_t arrived = 0;
    for (;;) {
      const std::size_t place = arrived % received.size();
      const ssize_t count =
          ::recv(receiver.get(), &received[place], std::min(kPiece, received.size() - place), 0);
      if (count == 0 || (count < 0 && errno != EINTR)) break;
      arrived += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    }
    if (arrived == 0) refuse_connection();
  }
  const double wall = seconds_since(begin);
  const double processor =
      (processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - processor_before) / std::min(1.0, cores);
  // Two threads on less than two cores alternate, and some system time is not attributed to them.
  const double seconds = cores < 2 ? std::max(wall, processor) : processor;
  return kRing * seconds / static_cast<double>(kBytes);
}

Calibration calibrate(train::Trainer& trainer, const data::Dataset& dataset,
                      const CalibrationOptions& options) {
  strategy::LocalReplicas& replicas = trainer.replicas();
  strategy::Strategy& strategy = replicas.strategy();
  if (strategy.num_replicas_in_sync() != 1)
    throw Error(ErrorCategory::input, "plan", "expected one replica to calibrate with",
                fmt::format("got {}", strategy.num_replicas_in_sync()));
  const double quota = processor_quota();
  const double cores = quota > 0 ? std::min<double>(quota, available_cores()) : available_cores();
  Calibration calibration{.model = trainer.network().name(),
                          .data = dataset.description(),
                          .machine = machine_of(strategy),
                          .precision = std::string(to_string(trainer.options().compute.precision)),
                          .elements = {},
                          .records = dataset.size(),
                          .cores = cores,
                          .timings = {}};
  std::set<std::int64_t> batches;
  for (const std::int64_t batch : options.batches) batches.insert(std::min(batch, dataset.size()));
  LOCKSTEP_CHECK(!batches.empty());
  const double seconds = options.seconds / static_cast<double>(batches.size());
  std::size_t number = 0;
  for (const std::int64_t batch : batches) {
    if (options.progress) options.progress(number, batch);
    ++number;
    const auto stream = dataset.batch(batch).stream(
        {.seed = trainer.options().seed,
         .prefetch = options.read.prefetch,
         .threads = train::reading_threads(options.read.data_threads, strategy),
         .pixels = strategy.has_gpu()});
    replicas.run([&](strategy::Replica& replica, int) {
      replica.prepare(batch, true);
      Measurement measurement(replica, replicas, trainer.options(), *stream, strategy.has_gpu(),
                              batch);
      calibration.timings.push_back(measurement.run(seconds));
      calibration.busy_cores = measurement.busy();
    });
  }
  replicas.run([&](strategy::Replica& replica, int) {
    model::CompiledModel& model = replica.model();
    for (const model::ParameterInfo& entry : model.trained_table().entries())
      calibration.elements.push_back(static_cast<std::int64_t>(entry.count));
    const model::CompiledModel::Memory memory = model.memory();
    calibration.parameter_bytes = static_cast<double>(memory.parameters);
    calibration.gradient_bytes = static_cast<double>(memory.gradients);
    calibration.slot_bytes = static_cast<double>(replica.optimizer().slot_names().size() *
                                                 model.trained_table().flat_size() * sizeof(float));
    const model::DeviceSpeed speed = model::measure_speed(model.backend());
    calibration.bytes_per_second = speed.bytes_per_second;
    calibration.flop_per_second = speed.flop_per_second;
  });
  if (strategy.has_gpu())
    calibration.busy_cores = 0;  // network cards read GPU memory
  else
    calibration.transfer_seconds_per_byte = measure_transfer(cores);
  return calibration;
}

}  // namespace lockstep::inline v0::apps
