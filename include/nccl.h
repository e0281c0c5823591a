/* NCCL's interface as HOCCL offers it: the calls that exist so far, with the names, numbers and layouts of NCCL 2.28.9.
 * C11 and C++, with or without CUDA's headers. hoccl.h holds what this API has no word for.
 *
 * Words. A *communicator* is one rank's handle to a fixed set of ranks 0 … n-1; ranks may be processes, threads, or
 * several handles of one thread. A *collective* is called by all ranks of a communicator, in the same order, with the
 * same type, count and operation. A count is always a number of elements, never of bytes.
 *
 * Memory is host memory and may have any element-aligned address. With the NULL stream a call has finished when it
 * returns; inside a group, when the outermost ncclGroupEnd returns.
 *
 * Errors. Every function returns ncclSuccess or the first error it met; the reason in words is in ncclGetLastError.
 * A call with wrong arguments changes nothing. After ncclSystemError, ncclInternalError or ncclRemoteError from a
 * collective the communicator is good for ncclCommGetAsyncError, ncclCommAbort and ncclCommDestroy only.
 *
 * Each function also exists under its name with a leading p. The plain names are weak, so a profiler may define them
 * and call the p names. */
#ifndef NCCL_H_
#define NCCL_H_

#include <stddef.h>

/* cudaStream_t. When CUDA's types are here already, or CUDA code is being compiled, or the user says so, CUDA's own
 * header gives it. Otherwise this declares the same type, which C11 and C++ let a later CUDA header repeat. */
#if defined(__CUDACC__) || defined(HOCCL_WITH_CUDA_RUNTIME) || defined(__CUDA_RUNTIME_H__) || \
    defined(__DRIVER_TYPES_H__) || defined(__CUDA_RUNTIME_API_H__)
#include <cuda_runtime.h>
#else
struct CUstream_st;
typedef struct CUstream_st* cudaStream_t;
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""

/* A release as one number, as ncclGetVersion gives it. Up to 2.8 a minor release had one decimal digit of room. */
#define NCCL_VERSION(X, Y, Z) ((Z) + (Y)*100 + (X) * ((X) <= 2 && (Y) <= 8 ? 1000 : 10000))
#define NCCL_VERSION_CODE 22809

#define NCCL_UNIQUE_ID_BYTES 128

#ifdef __cplusplus
extern "C" {
#endif

/* One rank's handle. Used by one thread at a time, except that ncclCommAbort, ncclCommGetAsyncError and the questions
 * (ncclCommCount, …) may be called from any thread at any time. */
typedef struct ncclComm* ncclComm_t;

/* The enumerations are 4-byte integers. In C++ any int may be passed, so that a wrong one is an error of the call and
 * not undefined behaviour of the caller. */
#ifdef __cplusplus
#define NCCL_INT : int
#else
#define NCCL_INT
#endif

/* How the ranks of a new communicator find each other. The bytes may be copied, stored and sent as they are. */
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum NCCL_INT {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1, /* a CUDA call failed */
  ncclSystemError = 2,        /* the system refused: memory, descriptors, sockets */
  ncclInternalError = 3,      /* a mistake in the library */
  ncclInvalidArgument = 4,    /* one argument cannot be right */
  ncclInvalidUsage = 5,       /* the call does not fit the state or the group, or ranks are set differently */
  ncclRemoteError = 6,        /* another rank failed, went away, did not come in time, or calls something else */
  ncclInProgress = 7,         /* not finished yet, not an error */
  ncclNumResults = 8
} ncclResult_t;

/* Element types. The 8-bit floats are the OCP formats; e4m3 has no infinity. */
typedef enum NCCL_INT {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

/* How elements are combined. Integer sums and products wrap around. ncclAvg multiplies each floating-point input by
 * 1/n and adds; for integers it adds and divides the sum by n, rounding towards zero. A NaN makes any result NaN,
 * also of ncclMax and ncclMin. */
typedef enum NCCL_INT {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff /* room for operations made at run time; keeps the enum four bytes wide */
} ncclRedOp_t;

/* *version becomes 10000*major + 100*minor + patch of the NCCL interface that the library offers: 22809.
 * ncclInvalidArgument: version is NULL. */
ncclResult_t ncclGetVersion(int* version);
ncclResult_t pncclGetVersion(int* version);

/* Makes an id for one new communicator. The calling process answers the ranks that use the id, so it must live until
 * all of them are connected; hand the bytes to the others by any means. With HOCCL_ID in the environment (hoccl-run
 * sets it) the k-th call of every process gives the same k-th id, and nothing needs to be handed round.
 * ncclInvalidArgument: uniqueId is NULL. ncclSystemError: no address to listen on. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId);

/* Makes rank `rank` of `nranks` of the communicator that commId names. All ranks call it; it returns when all are
 * connected. Several ranks of one thread need a group around their calls; *comm is then set by ncclGroupEnd.
 * ncclInvalidArgument: comm NULL, nranks < 1, rank outside 0 … nranks-1, not an id. ncclInvalidUsage: the ranks
 * disagree (two with one number, other nranks, other settings). ncclSystemError, ncclRemoteError: a rank did not come
 * within HOCCL_START_TIMEOUT, or failed. */
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);

/* Makes all ndev ranks of a communicator in this thread: comm[i] is rank i. devlist has ndev device numbers, or is
 * NULL for 0 … ndev-1; over host memory they are names only, given back by ncclCommCuDevice.
 * ncclInvalidArgument: comm NULL or ndev < 1. */
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);
ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);

/* Frees a communicator whose operations have finished. NULL is ncclSuccess. ncclInvalidArgument: not a live
 * communicator, for instance destroyed already (a handle may name a new communicator once 64 others were destroyed).
 * ncclInvalidUsage: the open group of this thread holds calls of it. Ranks that still wait for this one get an error.
 */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t pncclCommDestroy(ncclComm_t comm);

/* Ends whatever the communicator is doing, here and on its other ranks, and frees it. May be called while another
 * thread is inside one of its calls, which then returns an error; not before its creation has returned. NULL is
 * ncclSuccess. ncclInvalidArgument: not a live communicator. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t pncclCommAbort(ncclComm_t comm);

/* *asyncError becomes the error that has ended the communicator, ncclInProgress while work is running in the
 * background, else ncclSuccess. Never waits. ncclInvalidArgument: a NULL pointer or not a live communicator. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);

/* *count becomes the number of ranks. ncclInvalidArgument: a NULL pointer or not a live communicator. */
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t pncclCommCount(const ncclComm_t comm, int* count);

/* *device becomes the device number that ncclCommInitAll was given for this rank; 0 for a rank made by
 * ncclCommInitRank over host memory. ncclInvalidArgument: a NULL pointer or not a live communicator. */
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device);

/* *rank becomes this handle's rank. ncclInvalidArgument: a NULL pointer or not a live communicator. */
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank);

/* A result in words. Constant text, never NULL, for any number. */
const char* ncclGetErrorString(ncclResult_t result);
const char* pncclGetErrorString(ncclResult_t result);

/* What went wrong last in the calling thread's process: what was tried, on what, and why. comm may be NULL. Never
 * NULL; empty when nothing has failed. Valid until the calling thread's next call. */
const char* ncclGetLastError(ncclComm_t comm);
const char* pncclGetLastError(ncclComm_t comm);

/* The element-wise reduction of all ranks' sendbuff, in every rank's recvbuff; all ranks get the same bits.
 * sendbuff, recvbuff: count elements. In place: recvbuff == sendbuff; any other overlap is not allowed. count 0
 * moves nothing and waits for nobody, whatever the pointers. ncclInvalidArgument: a NULL pointer, an unknown type or
 * operation, not a live communicator. ncclRemoteError: the ranks called different things, a rank or the network failed,
 * or nothing moved for HOCCL_TIMEOUT. */
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream);

/* Part r of the element-wise reduction, in rank r's recvbuff. sendbuff: n*recvcount elements, n the number of ranks;
 * recvbuff: recvcount elements. In place: recvbuff == sendbuff + rank*recvcount; any other overlap is not allowed, and
 * sendbuff is never changed outside recvbuff. Errors as for ncclAllReduce. */
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* All ranks' sendbuff one after another in every rank's recvbuff, in the order of the ranks. sendbuff: sendcount
 * elements; recvbuff: n*sendcount elements. In place: sendbuff == recvbuff + rank*sendcount; any other overlap is not
 * allowed. Errors as for ncclAllReduce. */
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                            ncclComm_t comm, cudaStream_t stream);

/* Between a start and its end, calls of this thread are only noted; the outermost end runs all of them together.
 * Needed when one thread drives several ranks. Groups nest. Creating communicators and moving data do not mix in one
 * group. An error of a noted call is returned by ncclGroupEnd, which leaves no group open. ncclInvalidUsage: an end
 * without a start. */
ncclResult_t ncclGroupStart(void);
ncclResult_t pncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t pncclGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif /* NCCL_H_ */
