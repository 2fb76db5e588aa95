/* The same of C: says which of how many ranks it is. */
#include <stdio.h>

#include <lockstep/lockstep.h>

int main(void) {
  lockstep_session* session = NULL;
  if (lockstep_init(NULL, &session) != LOCKSTEP_OK) {
    fprintf(stderr, "%s\n", lockstep_last_error());
    return 1;
  }
  printf("Lockstep %s, rank %d of %d\n", lockstep_version(), lockstep_rank(session),
         lockstep_world_size(session));
  lockstep_finalize(session);
  return 0;
}
