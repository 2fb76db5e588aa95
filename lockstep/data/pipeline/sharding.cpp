#include "lockstep/data/pipeline/sharding.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::data {
namespace {

/// As in tf.distribute: with one worker, there is nothing to distribute.
ShardPolicy effective(ShardPolicy policy, ReplicaLayout layout) {
  return layout.workers() <= 1 && policy != ShardPolicy::data ? ShardPolicy::automatic : policy;
}

std::int64_t average_bytes(const std::vector<StoredFile>& files) {
  std::int64_t records = 0;
  std::int64_t bytes = 0;
  for (const StoredFile& file : files) {
    records += file.records;
    bytes += file.bytes;
  }
  return records == 0 ? 0 : bytes / records;
}

}  // namespace

Sharding::Sharding(const Pipeline& pipeline, ReplicaLayout layout)
    : policy_(effective(pipeline.policy, layout)),
      layout_(layout),
      shuffled_(pipeline.shuffled),
      files_(pipeline.source->info().files),
      ranges_(make_ranges(policy_, *pipeline.source, files_, layout.workers())),
      record_bytes_(average_bytes(files_)),
      slots_(has_own_orders() ? std::max<std::int64_t>(1, pipeline.global_batch / layout.workers())
                              : pipeline.global_batch),
      plan_(policy_, worker_records(), pipeline.global_batch, layout) {}

std::vector<Sharding::Ranges> Sharding::make_ranges(ShardPolicy policy, const RecordSource& source,
                                                    const std::vector<StoredFile>& files,
                                                    int workers) {
  if (policy != ShardPolicy::file) return {{{0}, {0}, source.size()}};
  if (files.size() < static_cast<std::size_t>(workers))
    throw Error(
        ErrorCategory::input, "shard-policy file",
        fmt::format(
            "expected at least one file for each of {} ranks; auto distributes records instead",
            workers),
        files.empty() ? source.info().description + " is not read from files"
                      : fmt::format("{} has {}", source.info().description, files.size()));
  std::vector<Ranges> ranges(workers);
  std::int64_t first_record = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    Ranges& own = ranges[i % ranges.size()];
    own.first_position.push_back(own.records);
    own.first_record.push_back(first_record);
    own.records += files[i].records;
    first_record += files[i].records;
  }
  return ranges;
}

std::vector<std::int64_t> Sharding::worker_records() const {
  if (!has_own_orders()) return {ranges_.front().records};
  std::vector<std::int64_t> records;
  for (int worker = 0; worker < layout_.workers(); ++worker)
    records.push_back(ranges_of(worker).records);
  return records;
}

RecordSequence Sharding::sequence(int worker, std::uint64_t seed, std::int64_t epoch) const {
  const Ranges& ranges = ranges_of(worker);
  if (!shuffled_ || ranges.records == 0) return RecordSequence(ranges, std::nullopt);
  if (policy_ == ShardPolicy::off && worker > 0)
    seed = random_key(seed, "worker", static_cast<std::uint64_t>(worker));
  return RecordSequence(ranges, EpochOrder(seed, epoch, shape_of(ranges)));
}

OrderShape Sharding::shape_of(const Ranges& ranges) const {
  return choose_order_shape(ranges.records, record_bytes_, slots_);
}

std::string Sharding::order() const {
  if (!shuffled_) return "in the order of ids";
  const OrderShape shape = shape_of(ranges_.front());
  if (shape.block == 1) return "shuffled one by one";
  return fmt::format("shuffled in blocks of {} records and windows of {}", shape.block,
                     shape.window);
}

std::vector<WorkerShare> Sharding::shares(std::uint64_t seed, std::int64_t epoch) const {
  std::vector<std::int64_t> last_record;  // last record of each file, plus 1
  if (!has_own_orders())
    for (const StoredFile& file : files_)
      last_record.push_back((last_record.empty() ? 0 : last_record.back()) + file.records);
  std::vector<WorkerShare> shares;
  for (int worker = 0; worker < layout_.workers(); ++worker)
    shares.push_back(has_own_orders() ? share_of_own_files(worker)
                                      : count(worker, sequence(worker, seed, epoch), last_record));
  return shares;
}

WorkerShare Sharding::share_of_own_files(int worker) const {
  WorkerShare share;
  const bool all = policy_ == ShardPolicy::off;
  const auto step = static_cast<std::size_t>(all ? 1 : layout_.workers());
  for (std::size_t i = all ? 0 : static_cast<std::size_t>(worker); i < files_.size(); i += step) {
    share.files += files_[i].records > 0;
    share.bytes += files_[i].bytes;
  }
  share.records = plan_.records_of_worker(worker);
  return share;
}

WorkerShare Sharding::count(int worker, const RecordSequence& sequence,
                            const std::vector<std::int64_t>& last_record) const {
  WorkerShare share = {0, plan_.records_of_worker(worker),
                       plan_.records_of_worker(worker) * record_bytes_};
  if (last_record.empty() || last_record.back() > kMaxCounted) return share;
  std::vector<bool> seen(files_.size());
  double bytes = 0;
  for (std::int64_t step = 0; step < plan_.steps_per_epoch(); ++step) {
    for (int local = 0; local < layout_.per_worker; ++local) {
      const Range positions = plan_.share(step, worker * layout_.per_worker + local).positions;
      for (std::int64_t position = positions.begin; position < positions.end; ++position) {
        const auto file = static_cast<std::size_t>(
            std::upper_bound(last_record.begin(), last_record.end(), sequence[position]) -
            last_record.begin());
        seen[file] = true;
        bytes +=
            static_cast<double>(files_[file].bytes) / static_cast<double>(files_[file].records);
      }
    }
  }
  share.files = std::ranges::count(seen, true);
  share.bytes = static_cast<std::int64_t>(bytes);
  return share;
}

std::size_t RecordSequence::range_at(std::int64_t position) const {
  const auto& first = ranges_->first_position;
  // Empty files have the position of the next file: the last of equal positions is the one that
  // contains it.
  return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), position) -
                                  first.begin()) -
         1;
}

std::int64_t RecordSequence::operator[](std::int64_t position) const {
  const std::int64_t index = order_ ? (*order_)[position] : position;
  const std::size_t range = range_at(index);
  return ranges_->first_record[range] + index - ranges_->first_position[range];
}

void RecordSequence::for_each_block_ahead(std::int64_t position,
                                          const std::function<void(Range)>& read) const {
  if (!order_) return;
  order_->for_each_block_ahead(position, [&](Range positions) {
    while (positions.begin < positions.end) {
      const std::size_t range = range_at(positions.begin);
      const std::int64_t end = range + 1 < ranges_->first_position.size()
                                   ? std::min(positions.end, ranges_->first_position[range + 1])
                                   : positions.end;
      const std::int64_t first =
          ranges_->first_record[range] + positions.begin - ranges_->first_position[range];
      read({first, first + end - positions.begin});
      positions.begin = end;
    }
  });
}

}  // namespace lockstep::inline v0::data
