/* The C interface: an optimizer in C around arrays of floats, as any language with a foreign
 * function interface would call it. Fits a line to points, each rank to its own. Runs alone, or
 * under mpirun:
 *
 *     mpirun -np 2 example_raw_pointers */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

enum { SAMPLES = 12, STEPS = 1000 };

/* y = slope * x + offset */
typedef struct line {
  float values[2];
  float gradients[2];
} line;

static int gradient_descent(void* state) {
  line* model = state;
  for (int i = 0; i < 2; ++i) model->values[i] -= 0.1f * model->gradients[i];
  return 0;
}

/* Gradients of the mean squared error over points [begin, end) of y = 3 x - 1. */
static void backward(line* model, int begin, int end) {
  model->gradients[0] = model->gradients[1] = 0;
  for (int i = begin; i < end; ++i) {
    const float x = (float)i / SAMPLES;
    const float error = model->values[0] * x + model->values[1] - (3 * x - 1);
    model->gradients[0] += 2 * error * x / (float)(end - begin);
    model->gradients[1] += 2 * error / (float)(end - begin);
  }
}

/* Whatever fails is told in words; that this process then fails ends the others. */
static void check(int status) {
  if (status == LOCKSTEP_OK) return;
  fprintf(stderr, "error: %s\n", lockstep_last_error());
  exit(status);
}

int main(void) {
  lockstep_session* session;
  check(lockstep_init(NULL, &session));
  const int rank = lockstep_rank(session);
  const int size = lockstep_world_size(session);

  line model = {{(float)rank, 0}, {0, 0}}; /* ranks begin with different values */
  const lockstep_parameter parameters[] = {
      {"slope", &model.values[0], &model.gradients[0], 1, LOCKSTEP_FLOAT32},
      {"offset", &model.values[1], &model.gradients[1], 1, LOCKSTEP_FLOAT32}};
  lockstep_optimizer* optimizer;
  check(lockstep_optimizer_create(session, parameters, 2, NULL, gradient_descent, &model,
                                  &optimizer));
  check(lockstep_broadcast_parameters(optimizer, 0));

  const int begin = rank * SAMPLES / size;
  const int end = (rank + 1) * SAMPLES / size;
  for (int step = 0; step < STEPS; ++step) {
    backward(&model, begin, end);
    check(lockstep_backward_done(optimizer, end - begin));
    check(lockstep_step(optimizer, NULL));
  }
  if (rank == 0)
    printf("y = %.4f x %+.4f, from %d rank%s\n", model.values[0], model.values[1], size,
           size == 1 ? "" : "s");

  lockstep_optimizer_free(optimizer);
  lockstep_finalize(session);
  return 0;
}
