// The cells of recurrent layers on a CPU.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/layers/recurrent/recurrent.h"

namespace lockstep::inline v0::model::cpu {

/// The arrays of one direction of elements T.
template <typename T>
struct RecurrentArrays {
  T* inputs;           // [T, rows, inputs], or their gradients
  float* products;     // [rows, width], or [rows, units]: the gradients of the previous outputs
  float* carry;        // [rows, units]: the remaining gradient for the previous step
  float* kept;         // [rows, units]: the gradient that padding passes to the previous step
  float* initial;      // [states, rows, units]: the gradient of the initial state
  T* gates;            // see RecurrentLayout
  T* recurrent_gates;  // [T, rows, width]: gradients of the recurrent products
  T* hidden;
  float* state;
  T* candidates;
  RecurrentMark* marks;
};

/// The gates of one sample at a time; 16-bit elements are widened when they are read and rounded
/// once when they are written.
template <typename T>
class RecurrentCells {
 public:
  using Arrays = RecurrentArrays<T>;
  using Values = Eigen::ArrayXf;
  template <typename E>
  using Row = Eigen::Map<Eigen::Array<E, Eigen::Dynamic, 1>>;

  explicit RecurrentCells(const RecurrentSpec& spec) : spec_(spec) {
    for (Values& values : values_) values.resize(spec.units);
    wide_gates_.resize(spec.width());
  }

  template <typename E>
  Row<E> row_of(E* values, std::int64_t row) const {
    return {values + row * spec_.units, spec_.units};
  }
  Row<T> outputs_of(const Arrays& a, std::int64_t row) const { return row_of(a.hidden, row); }
  RecurrentMark mark(const Arrays& a, std::int64_t row) const {
    return spec_.segments ? a.marks[row] : RecurrentMark::next;
  }
  /// The cell state that row `row` of all steps, row `n` of its step, reads.
  Row<float> state_before(const Arrays& a, std::int64_t row, std::int64_t n) const {
    return row_of(a.state, mark(a, row) == RecurrentMark::first ? n : row);
  }
  /// Computes row `row` of all steps, row `n` of its step.
  void forward(const Arrays& a, std::int64_t row, std::int64_t n) {
    const ConstFloatArray inputs =
        widened(a.gates + row * spec_.width(), spec_.width(), wide_gates_.data());
    const auto input = [&](std::int64_t k) {
      return ConstFloatArray(inputs.data() + k * spec_.units, spec_.units);
    };
    const auto sum = [&](std::int64_t k) { return input(k) + gate(a.products, n, k); };
    const auto store_gate = [&](std::int64_t k) {
      narrow(values_[k].data(), spec_.units, gate(a.gates, row, k).data());
    };
    Row<T> next = outputs_of(a, row + spec_.rows);
    const auto output = [&](const auto& value) {
      assign(value, next.data(), spec_.units, wide_row_.data());
    };
    if (mark(a, row) == RecurrentMark::padding) {
      next = outputs_of(a, row);
      if (spec_.cell == RecurrentCell::lstm)
        row_of(a.state, row + spec_.rows) = row_of(a.state, row);
      return;
    }
    switch (spec_.cell) {
      case RecurrentCell::simple_rnn:
        values_[0] = sum(0).tanh();
        store_gate(0);
        output(values_[0]);
        return;
      case RecurrentCell::gru:
        values_[0] = sum(0).logistic();
        values_[1] = sum(1).logistic();
        values_[2] = (input(2) + values_[0] * gate(a.products, n, 2)).tanh();
        if (spec_.training)
          narrow(gate(a.products, n, 2).data(), spec_.units, row_of(a.candidates, row).data());
        for (std::int64_t k = 0; k < 3; ++k) store_gate(k);
        output(values_[2] + values_[1] * (wide(outputs_of(a, row)) - values_[2]));
        return;
      case RecurrentCell::lstm: {
        for (const std::int64_t k : {0, 1, 3}) values_[k] = sum(k).logistic();
        values_[2] = sum(2).tanh();
        for (std::int64_t k = 0; k < 4; ++k) store_gate(k);
        Row<float> state = row_of(a.state, row + spec_.rows);
        state = values_[1] * state_before(a, row, n) + values_[0] * values_[2];
        output(values_[3] * state.tanh());
      }
    }
  }

  Values& gradient() { return gradient_; }  ///< input of backward(): that of the output
  /// Computes the gradients of the preactivations of the gates from gradient().
  void backward(const Arrays& a, std::int64_t row, std::int64_t n) {
    const auto write = [&](std::int64_t k, const auto& value) {
      assign(value, gate(a.gates, row, k).data(), spec_.units, wide_gates_.data());
    };
    if (spec_.segments && skip_padding(a, row, n)) return;
    for (std::int64_t k = 0; k * spec_.units < spec_.width(); ++k)
      widen(gate(a.gates, row, k).data(), spec_.units, values_[k].data());
    Row<float> carry = row_of(a.carry, n);
    switch (spec_.cell) {
      case RecurrentCell::simple_rnn:
        write(0, gradient_ * (1 - values_[0].square()));
        return;
      case RecurrentCell::gru: {
        const Values& r = values_[0];
        const Values& z = values_[1];
        const Values& candidate = values_[2];
        gradient_ += carry;
        carry = gradient_ * z;
        write(1, gradient_ * (wide(outputs_of(a, row)) - candidate) * z * (1 - z));
        gradient_ *= (1 - z) * (1 - candidate.square());
        write(2, gradient_);
        write(0, gradient_ * wide(row_of(a.candidates, row)) * r * (1 - r));
        for (std::int64_t k = 0; k < 2; ++k)
          gate(a.recurrent_gates, row, k) = gate(a.gates, row, k);
        assign(gradient_ * r, gate(a.recurrent_gates, row, 2).data(), spec_.units,
               wide_gates_.data());
        return;
      }
      case RecurrentCell::lstm: {
        const auto& [i, f, g, o] = values_;
        tanh_ = row_of(a.state, row + spec_.rows).tanh();
        carry += gradient_ * o * (1 - tanh_.square());
        write(3, gradient_ * tanh_ * o * (1 - o));
        write(0, carry * g * i * (1 - i));
        write(1, carry * state_before(a, row, n) * f * (1 - f));
        write(2, carry * i * (1 - g.square()));
        carry *= f;
      }
    }
  }

 private:
  // The part of gate k in a row of [.., width].
  template <typename E>
  Row<E> gate(E* values, std::int64_t row, std::int64_t k) const {
    return {values + row * spec_.width() + k * spec_.units, spec_.units};
  }
  // The elements of a row as float32, until the next call.
  ConstFloatArray wide(const Row<T>& row) {
    return widened(row.data(), spec_.units, wide_row_.data());
  }
  // If the row is padding, passes its gradient to the previous output and returns true.
  bool skip_padding(const Arrays& a, std::int64_t row, std::int64_t n) const {
    Row<float> kept = row_of(a.kept, n);
    if (a.marks[row] != RecurrentMark::padding) {
      kept.setZero();
      return false;
    }
    kept = gradient_;
    std::fill_n(a.gates + row * spec_.width(), spec_.width(), T(0));
    std::fill_n(a.recurrent_gates + row * spec_.width(), spec_.width(), T(0));
    return true;
  }

  RecurrentSpec spec_;
  std::array<Values, 4> values_;  // values of the gates
  Values gradient_ = Values(spec_.units);
  Values tanh_ = Values(spec_.units);
  Values wide_gates_;  // gates of a row, [width]
  Values wide_row_ = Values(spec_.units);
};

}  // namespace lockstep::inline v0::model::cpu
