#include "lockstep/data/pipeline/prefetch_stream.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::data {

int WorkerTuner::add_step(double waited, double elapsed, bool all_ready) {
  idle_steps_ = all_ready ? idle_steps_ + 1 : 0;
  if (idle_steps_ >= patience_) {
    idle_steps_ = 0;
    has_shrunk_ = has_shrunk_ || workers_ > 1;
    workers_ = std::max(1, workers_ - 1);
  }
  waited_ += waited;
  elapsed_ += elapsed;
  if (++window_steps_ < kWindowSteps) return workers_;
  if (waited_ > kWaitShare * elapsed_) {
    if (has_shrunk_) patience_ = std::min(2 * patience_, kMaxIdleSteps);
    has_shrunk_ = false;
    workers_ = std::min(max_workers_, workers_ + 1);
  }
  window_steps_ = 0;
  waited_ = 0;
  elapsed_ = 0;
  return workers_;
}

namespace {

std::size_t slots_that_fit(int prefetch, std::int64_t step_bytes, std::int64_t budget) {
  const std::int64_t fit = budget / std::max<std::int64_t>(step_bytes, 1);
  return static_cast<std::size_t>(std::clamp<std::int64_t>(fit, 1, prefetch));
}

}  // namespace

PrefetchStream::PrefetchStream(Pipeline pipeline, const StreamOptions& options)
    : reader_(std::move(pipeline), options),
      pieces_per_step_(options.threads),
      last_step_(options.last_step < 0 ? std::numeric_limits<std::int64_t>::max()
                                       : options.last_step),
      tuner_(options.threads),
      slots_(slots_that_fit(options.prefetch, reader_.step_bytes(), options.prefetch_bytes)),
      claimed_step_(options.first_step),
      next_step_(options.first_step),
      workers_(tuner_.workers()) {
  for (int i = 0; i < options.threads; ++i) {
    threads_.push_back(start_thread<std::jthread>(
        "reading data", [this, i](const std::stop_token& stop) { work(i, stop); }));
  }
}

PrefetchStream::~PrefetchStream() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

bool PrefetchStream::next(std::vector<Batch>& parts) {
  if (next_step_ >= last_step_) return false;
  {
    std::unique_lock lock(mutex_);
    double waited = 0;
    const bool were_ready = all_ready();
    if (!is_ready(next_step_)) {
      const trace::Span waiting("wait for input");
      const auto start = Clock::now();
      step_ready_.wait(lock, [&] { return is_ready(next_step_); });
      waited = seconds_since(start);
    }
    seconds_waited_ += waited;
    Slot& slot = slot_of(next_step_);
    count_bad_records(slot);
    if (slot.error) std::rethrow_exception(slot.error);
    deliver(parts, waited, were_ready);
  }
  slot_free_.notify_all();
  return true;
}

bool PrefetchStream::next_if_ready(std::vector<Batch>& parts) {
  if (next_step_ >= last_step_) return false;
  {
    const std::scoped_lock lock(mutex_);
    if (!is_ready(next_step_)) return false;
    Slot& slot = slot_of(next_step_);
    count_bad_records(slot);
    if (slot.error) return false;
    deliver(parts, 0, all_ready());
  }
  slot_free_.notify_all();
  return true;
}

/// Sets the error of a step whose bad records exceed the limit. An error of one of its pieces has
/// priority: its record is bad, too.
void PrefetchStream::count_bad_records(Slot& slot) {
  bad_records_.merge(slot.bad);
  slot.bad.clear();
  if (slot.error) return;
  try {
    reader_.check(bad_records_);
  } catch (const Error&) {
    slot.error = std::current_exception();
    failed_ = true;
  }
}

std::vector<BadRecord> PrefetchStream::bad_records() const {
  std::vector<BadRecord> list;
  for (const auto& [record_id, problem] : bad_records_) list.push_back({record_id, problem});
  return list;
}

void PrefetchStream::deliver(std::vector<Batch>& parts, double waited, bool were_ready) {
  std::swap(parts, slot_of(next_step_).parts);
  ++next_step_;
  const auto now = Clock::now();
  if (last_delivery_)  // the first step is not representative: all slots were empty
    workers_ = tuner_.add_step(waited, std::chrono::duration<double>(now - *last_delivery_).count(),
                               were_ready);
  last_delivery_ = now;
}

bool PrefetchStream::is_ready(std::int64_t step) const {
  return claimed_step_ > step && slots_[slot_number(step)].unfinished_pieces == 0;
}

bool PrefetchStream::all_ready() const {
  const std::int64_t end =
      std::min(next_step_ + static_cast<std::int64_t>(slots_.size()), last_step_);
  for (std::int64_t step = next_step_; step < end; ++step) {
    if (!is_ready(step)) return false;
  }
  return true;
}

void PrefetchStream::work(int thread, const std::stop_token& stop) {
  trace::name_thread("reading data", thread);
  double counted = 0;  // processor time of this thread so far
  for (;;) {
    Piece piece;
    {
      std::unique_lock lock(mutex_);
      if (!can_claim(thread)) {
        const trace::Span waiting(trace::kIdleSpan);
        slot_free_.wait(lock, stop, [&] { return can_claim(thread); });
      }
      if (stop.stop_requested()) return;
      piece = claim_piece();
    }
    BadRecordProblems bad;
    std::exception_ptr error;
    try {
      const trace::Span reading("read records", piece.number);
      reader_.fill(piece.samples, piece.slot->parts, bad, stop);
    } catch (...) {
      error = std::current_exception();
    }
    finish_piece(piece, std::move(bad), std::move(error));
    const double used = lockstep::processor_seconds(CLOCK_THREAD_CPUTIME_ID);
    processor_seconds_.fetch_add(used - counted, std::memory_order_relaxed);
    counted = used;
  }
}

/// A started step is always finished, so that its slot completes; a new step needs a free slot.
bool PrefetchStream::can_claim(int thread) const {
  if (thread >= workers_) return false;
  if (next_piece_ > 0) return true;
  return !failed_ && claimed_step_ < last_step_ &&
         claimed_step_ - next_step_ < static_cast<std::int64_t>(slots_.size());
}

PrefetchStream::Piece PrefetchStream::claim_piece() {
  Slot& slot = slot_of(claimed_step_);
  if (next_piece_ == 0) begin_step(slot);
  const Piece piece = {
      &slot, next_piece_,
      split(BatchReader::local_samples(slot.parts), pieces_per_step_, next_piece_)};
  if (++next_piece_ == pieces_per_step_) {
    next_piece_ = 0;
    ++claimed_step_;
  }
  return piece;
}

void PrefetchStream::begin_step(Slot& slot) {
  slot.unfinished_pieces = pieces_per_step_;
  const trace::Span span("lay out batch");
  try {
    reader_.resize_parts(claimed_step_, slot.parts);
  } catch (...) {  // out of memory; the step's pieces are then empty, and next() reports the error
    slot.parts.clear();
    slot.error = std::current_exception();
    slot.failed_piece = -1;
    failed_ = true;
  }
}

void PrefetchStream::finish_piece(const Piece& piece, BadRecordProblems bad,
                                  std::exception_ptr error) {
  bool ready = false;
  {
    std::unique_lock lock(mutex_);
    Slot& slot = *piece.slot;
    if (slot.unfinished_pieces == 1 && reader_.needs_padding() && !slot.error && !error) {
      lock.unlock();  // no other thread uses the slot now
      const trace::Span span("pad batch");
      try {
        for (Batch& part : slot.parts) part.pad();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
    }
    slot.bad.merge(bad);
    if (error) {
      failed_ = true;
      if (!slot.error || piece.number < slot.failed_piece) {
        slot.error = std::move(error);
        slot.failed_piece = piece.number;
      }
    }
    ready = --slot.unfinished_pieces == 0;
  }
  if (ready) step_ready_.notify_one();
}

}  // namespace lockstep::inline v0::data
