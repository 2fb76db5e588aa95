#include "data/pipeline/prefetch_stream.h"

#include <chrono>
#include <limits>
#include <utility>

namespace lockstep::data {

PrefetchStream::PrefetchStream(Pipeline pipeline, const StreamOptions& options)
    : reader_(std::move(pipeline), options),
      pieces_per_step_(options.threads),
      last_step_(options.last_step < 0 ? std::numeric_limits<std::int64_t>::max() : options.last_step),
      slots_(static_cast<std::size_t>(options.prefetch)),
      taking_step_(options.first_step),
      next_step_(options.first_step) {
  for (int i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

PrefetchStream::~PrefetchStream() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

bool PrefetchStream::next(std::vector<Batch>& parts) {
  if (next_step_ >= last_step_) return false;
  Slot& slot = slot_of(next_step_);
  {
    std::unique_lock lock(mutex_);
    if (!is_ready(slot)) {
      const auto start = std::chrono::steady_clock::now();
      step_ready_.wait(lock, [&] { return is_ready(slot); });
      seconds_waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (slot.error) std::rethrow_exception(slot.error);
    std::swap(parts, slot.parts);
    ++next_step_;
  }
  slot_free_.notify_all();
  return true;
}

bool PrefetchStream::next_if_ready(std::vector<Batch>& parts) {
  if (next_step_ >= last_step_) return false;
  {
    const std::scoped_lock lock(mutex_);
    Slot& slot = slot_of(next_step_);
    if (!is_ready(slot) || slot.error) return false;
    std::swap(parts, slot.parts);
    ++next_step_;
  }
  slot_free_.notify_all();
  return true;
}

void PrefetchStream::work(const std::stop_token& stop) {
  for (;;) {
    Piece piece;
    {
      std::unique_lock lock(mutex_);
      if (!slot_free_.wait(lock, stop, [&] { return can_take(); }) || stop.stop_requested()) return;
      piece = take_piece();
    }
    std::exception_ptr error;
    try {
      reader_.fill(piece.samples, piece.slot->parts, stop);
    } catch (...) {
      error = std::current_exception();
    }
    finish_piece(piece, std::move(error));
  }
}

/// A started step is always taken to its end, so that its slot completes; a new one needs a free slot.
bool PrefetchStream::can_take() const {
  if (taking_piece_ > 0) return true;
  return !failed_ && taking_step_ < last_step_ && taking_step_ - next_step_ < static_cast<std::int64_t>(slots_.size());
}

PrefetchStream::Piece PrefetchStream::take_piece() {
  Slot& slot = slot_of(taking_step_);
  if (taking_piece_ == 0) begin_step(slot);
  const Piece piece = {&slot, taking_piece_,
                       split(BatchReader::local_samples(slot.parts), pieces_per_step_, taking_piece_)};
  if (++taking_piece_ == pieces_per_step_) {
    taking_piece_ = 0;
    ++taking_step_;
  }
  return piece;
}

void PrefetchStream::begin_step(Slot& slot) {
  slot.pieces_left = pieces_per_step_;
  try {
    reader_.lay_out(taking_step_, slot.parts);
  } catch (...) {  // no memory; the step's pieces are then empty, and next() reports it
    slot.parts.clear();
    slot.error = std::current_exception();
    slot.failed_piece = -1;
    failed_ = true;
  }
}

void PrefetchStream::finish_piece(const Piece& piece, std::exception_ptr error) {
  bool ready = false;
  {
    const std::scoped_lock lock(mutex_);
    Slot& slot = *piece.slot;
    if (error) {
      failed_ = true;
      if (!slot.error || piece.number < slot.failed_piece) {
        slot.error = std::move(error);
        slot.failed_piece = piece.number;
      }
    }
    ready = --slot.pieces_left == 0;
  }
  if (ready) step_ready_.notify_one();
}

}  // namespace lockstep::data
