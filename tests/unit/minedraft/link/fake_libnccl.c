/* A stand-in for libnccl.so.2 that says what it is asked: no GPU. Used by test_nccl_library.py. */
#include <stdio.h>
#include <string.h>

typedef struct { char bytes[128]; } unique_id;
typedef struct { /* the head of ncclConfig_t, as of 2.17 */
  size_t size; unsigned magic, version; int blocking, cga_cluster_size, min_ctas, max_ctas;
} config;

static int polls;

int ncclGetVersion(int *version) { *version = 23007; return 0; }
int ncclGetUniqueId(unique_id *id) { memset(id, 7, sizeof *id); return 0; }

int ncclCommInitRankScalable(void **comm, int ranks, int rank, int num_ids, unique_id *ids, config *c) {
  printf("init ranks=%d rank=%d ids=%d id0=%d blocking=%d ctas=%d..%d\n", ranks, rank, num_ids,
         ids->bytes[0], c->blocking, c->min_ctas, c->max_ctas);
  fflush(stdout);
  *comm = &polls;
  return 7; /* in progress */
}

int ncclCommGetAsyncError(void *comm, int *error) {
  static const int states[] = {7, 7, 0, 6};
  *error = states[polls < 3 ? polls : 3];
  polls++;
  return 0;
}

int ncclCommAbort(void *comm) { puts("abort"); fflush(stdout); return 0; }
int ncclCommDestroy(void *comm) { puts("DESTROY"); fflush(stdout); return 0; }
int ncclCommFinalize(void *comm) { puts("FINALIZE"); fflush(stdout); return 0; }
const char *ncclGetLastError(void *comm) { return "last words"; }
const char *ncclGetErrorString(int result) {
  static char text[32];
  snprintf(text, sizeof text, "fake error %d", result);
  return text;
}
