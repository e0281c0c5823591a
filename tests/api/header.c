/* The public headers as a C11 program sees them: numbers, sizes and signatures of NCCL's binary interface. All checks
 * are made by the compiler; running it only says so. Built with every warning an error. */
#include <stddef.h>

#include "nccl.h"
/* A second declaration, as a later CUDA header makes it, must be harmless. */
typedef struct CUstream_st* cudaStream_t;
#include "hoccl.h"

#define IS(name, number) _Static_assert((int)(name) == (number), #name " is not " #number)

IS(NCCL_MAJOR, 2);
IS(NCCL_MINOR, 28);
IS(NCCL_PATCH, 9);
IS(NCCL_VERSION_CODE, 22809);
IS(NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), NCCL_VERSION_CODE);
IS(NCCL_VERSION(2, 8, 4), 2804);
IS(NCCL_VERSION(2, 9, 1), 20901);
IS(NCCL_VERSION(1, 3, 5), 1305);

IS(ncclSuccess, 0);
IS(ncclUnhandledCudaError, 1);
IS(ncclSystemError, 2);
IS(ncclInternalError, 3);
IS(ncclInvalidArgument, 4);
IS(ncclInvalidUsage, 5);
IS(ncclRemoteError, 6);
IS(ncclInProgress, 7);
IS(ncclNumResults, 8);

IS(ncclInt8, 0);
IS(ncclChar, 0);
IS(ncclUint8, 1);
IS(ncclInt32, 2);
IS(ncclInt, 2);
IS(ncclUint32, 3);
IS(ncclInt64, 4);
IS(ncclUint64, 5);
IS(ncclFloat16, 6);
IS(ncclHalf, 6);
IS(ncclFloat32, 7);
IS(ncclFloat, 7);
IS(ncclFloat64, 8);
IS(ncclDouble, 8);
IS(ncclBfloat16, 9);
IS(ncclFloat8e4m3, 10);
IS(ncclFloat8e5m2, 11);
IS(ncclNumTypes, 12);

IS(ncclSum, 0);
IS(ncclProd, 1);
IS(ncclMax, 2);
IS(ncclMin, 3);
IS(ncclAvg, 4);
IS(ncclNumOps, 5);
IS(ncclMaxRedOp, 0x7fffffff);

IS(NCCL_UNIQUE_ID_BYTES, 128);
IS(sizeof(ncclUniqueId), 128);
IS(_Alignof(ncclUniqueId), 1);
IS(offsetof(ncclUniqueId, internal), 0);
IS(sizeof(ncclResult_t), 4);
IS(sizeof(ncclDataType_t), 4);
IS(sizeof(ncclRedOp_t), 4);
IS(sizeof(ncclComm_t), sizeof(void*));
IS(sizeof(cudaStream_t), sizeof(void*));

/* Both names of each function have the type that callers were built for. */
#define HAS(name, type)                                                                \
  _Static_assert(_Generic(&(name), type : 1, default : 0), #name " has another type"); \
  _Static_assert(_Generic(&(p##name), type : 1, default : 0), "p" #name " has another type")

HAS(ncclGetVersion, ncclResult_t (*)(int*));
HAS(ncclGetUniqueId, ncclResult_t (*)(ncclUniqueId*));
HAS(ncclCommInitRank, ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int));
HAS(ncclCommInitAll, ncclResult_t (*)(ncclComm_t*, int, const int*));
HAS(ncclCommDestroy, ncclResult_t (*)(ncclComm_t));
HAS(ncclCommAbort, ncclResult_t (*)(ncclComm_t));
HAS(ncclCommGetAsyncError, ncclResult_t (*)(ncclComm_t, ncclResult_t*));
HAS(ncclCommCount, ncclResult_t (*)(ncclComm_t, int*));
HAS(ncclCommCuDevice, ncclResult_t (*)(ncclComm_t, int*));
HAS(ncclCommUserRank, ncclResult_t (*)(ncclComm_t, int*));
HAS(ncclGetErrorString, const char* (*)(ncclResult_t));
HAS(ncclGetLastError, const char* (*)(ncclComm_t));
HAS(ncclAllReduce, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t));
HAS(ncclReduceScatter,
    ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t));
HAS(ncclAllGather, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t));
HAS(ncclGroupStart, ncclResult_t (*)(void));
HAS(ncclGroupEnd, ncclResult_t (*)(void));

int main(void) { return 0; }
