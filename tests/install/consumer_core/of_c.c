/* The sum over the ranks of what each has. */
#include <stdio.h>

#include <lockstep/core.h>

int main(void) {
  lockstep_session* session = NULL;
  float values[2];
  if (lockstep_init(NULL, &session) != LOCKSTEP_OK) {
    fprintf(stderr, "%s\n", lockstep_last_error());
    return 1;
  }
  values[0] = 1;
  values[1] = (float)lockstep_rank(session);
  if (lockstep_all_reduce(session, values, 2, LOCKSTEP_FLOAT32, LOCKSTEP_SUM) != LOCKSTEP_OK) {
    fprintf(stderr, "%s\n", lockstep_last_error());
    return 1;
  }
  if (lockstep_rank(session) == 0) printf("sums %g %g\n", values[0], values[1]);
  lockstep_finalize(session);
  return 0;
}
