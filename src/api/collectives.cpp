// The collective calls: arguments are checked here, so that nothing has started when an error is returned.
#include "src/api/guard.hpp"
#include "src/api/handle.hpp"

using namespace hoccl;

namespace {

struct Call {
  const char* name;
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  ncclComm_t comm;
  cudaStream_t stream;
};

Request checked(const Call& call, int ranks) {
  require(call.type >= 0 && call.type < ncclNumTypes, Code::invalid_argument, "{}: {} is no data type (0 to {})",
          call.name, static_cast<int>(call.type), ncclNumTypes - 1);
  require(call.op >= 0 && call.op < ncclNumOps, Code::invalid_argument, "{}: {} is no reduction (0 to {})", call.name,
          static_cast<int>(call.op), ncclNumOps - 1);
  const auto type = static_cast<Type>(call.type);
  const std::size_t most = static_cast<std::size_t>(INT64_MAX) / static_cast<std::size_t>(row(type).bytes * ranks);
  require(call.count <= most, Code::invalid_argument, "{}: a count of {} is beyond any memory", call.name, call.count);
  require(call.count == 0 || call.in != nullptr, Code::invalid_argument, "{}: sendbuff is NULL", call.name);
  require(call.count == 0 || call.out != nullptr, Code::invalid_argument, "{}: recvbuff is NULL", call.name);
  const auto align = static_cast<std::uintptr_t>(row(type).bytes - 1);
  require(((reinterpret_cast<std::uintptr_t>(call.in) | reinterpret_cast<std::uintptr_t>(call.out)) & align) == 0,
          Code::invalid_argument, "{}: the buffers are not aligned to elements of {} bytes", call.name,
          row(type).bytes);
  require(call.stream == nullptr, Code::invalid_argument,
          "{}: stream {} is unknown: host memory takes the NULL stream, which "
          "completes on return",
          call.name, fmt::ptr(call.stream));
  return {call.kind, call.in, call.out, Count(static_cast<std::int64_t>(call.count)), type, static_cast<Op>(call.op)};
}

ncclResult_t collective(const Call& call) {
  return guarded(
      [&] {
        const Use comm(call.comm);
        const Request request = checked(call, comm->size());
        if (Group::mine().open()) return Group::mine().add(*comm, request);
        Work work{&*comm, {request}, std::nullopt};
        run({&work, 1});
        if (work.error) throw Error(*work.error);
      },
      true);
}

}  // namespace

HOCCL_NCCL(ncclResult_t, ncclAllReduce,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
            ncclComm_t comm, cudaStream_t stream)) {
  return collective({"ncclAllReduce", Kind::all_reduce, sendbuff, recvbuff, count, datatype, op, comm, stream});
}

HOCCL_NCCL(ncclResult_t, ncclReduceScatter,
           (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
            ncclComm_t comm, cudaStream_t stream)) {
  return collective(
      {"ncclReduceScatter", Kind::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op, comm, stream});
}

HOCCL_NCCL(ncclResult_t, ncclAllGather,
           (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
            cudaStream_t stream)) {
  return collective(
      {"ncclAllGather", Kind::all_gather, sendbuff, recvbuff, sendcount, datatype, ncclSum, comm, stream});
}
