/* What NCCL's API has no word for. C11 and C++; read nccl.h first.
 *
 * All functions return ncclInvalidArgument for a NULL or unknown pointer, with the text in ncclGetLastError. */
#ifndef HOCCL_H_
#define HOCCL_H_

#include <stddef.h>

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0". Constant text. */
const char* hocclVersion(void);

/* Where a rank sits: its node of `*nodes`, and its index among the ranks of that node. Any pointer may be NULL. */
ncclResult_t hocclCommPlace(ncclComm_t comm, int* node, int* nodes, int* local_rank, int* local_ranks);

/* Payload moved over one link since the communicator was made, in bytes and messages; headers are not counted. */
typedef struct {
  int peer;           /* rank at the other end */
  int outgoing;       /* 1: sent by this rank, 0: received */
  int between_nodes;  /* 1: the two ranks are on different nodes */
  char transport[16]; /* "local", "shm", "tcp" */
  char channel[16];   /* "ring", "rail", …: see docs/plan.md */
  char route[48];     /* "shm", "tcp lo" */
  long long bytes;
  long long messages;
} hocclTraffic_t;

/* Fills up to *count rows and sets *count to the number of links. rows may be NULL to ask for the number. */
ncclResult_t hocclCommTraffic(ncclComm_t comm, hocclTraffic_t* rows, int* count);

/* What a call would run: the schedule's name and the number of parts it cuts each block into. collective is
 * "all_reduce", "reduce_scatter" or "all_gather"; count is the call's own (reduce-scatter: elements received,
 * all-gather: elements sent). name has room for name_size bytes, its end included. streams: what one node's network
 * carries at once. */
ncclResult_t hocclCommChoice(ncclComm_t comm, const char* collective, size_t count, ncclDataType_t type, char* name,
                             size_t name_size, int* parts, int* streams);

#ifdef __cplusplus
}
#endif

#endif /* HOCCL_H_ */
