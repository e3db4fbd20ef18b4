/* A CUDA driver and runtime without a GPU: it reports one device, hands out host memory as device
 * memory, and launches nothing.
 *
 * Preloaded, and named libcuda.so.1, it lets the CUDA build of PyTorch run on any machine: fake
 * tensors get gradients, autocast, streams and optimizers, and Inductor and Triton compile for the
 * device that SUDOCOT_STUB_SM names (80, 90, ...). No kernel runs, so no value means anything.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static cudaStream_t capturing;
static const size_t memory = (size_t)80 << 30, host_limit = (size_t)2 << 30;
static size_t allocated;
static size_t num_handles = 0x1000;

static int sm(void) {
    const char *name = getenv("SUDOCOT_STUB_SM");
    return name ? atoi(name) : 90;
}

static void *handle(void) { return (void *)(num_handles += 16); }

static int attribute(int which) {
    switch (which) { /* the runtime and the driver number them alike */
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return sm() == 90 ? 232448 : 166912;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return sm() == 90 ? 233472 : 167936;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrMultiProcessorCount: return sm() == 90 ? 132 : 108;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrComputeCapabilityMajor: return sm() / 10;
    case cudaDevAttrComputeCapabilityMinor: return sm() % 10;
    default: return 1;
    }
}

/* Functions that do nothing; the declarations in the headers keep their C names taken. */
#define SUCCEEDS(name)                                                                             \
    int stub_##name(void) __asm__(#name);                                                          \
    int stub_##name(void) { return 0; }

SUCCEEDS(cuCtxSetCurrent) SUCCEEDS(cuCtxSetLimit) SUCCEEDS(cuFuncSetAttribute) SUCCEEDS(cuFuncSetCacheConfig)
SUCCEEDS(cuInit) SUCCEEDS(cuLaunchKernel) SUCCEEDS(cuLaunchKernelEx) SUCCEEDS(cuModuleUnload)
SUCCEEDS(cudaDeviceEnablePeerAccess) SUCCEEDS(cudaDeviceGetDefaultMemPool)
SUCCEEDS(cudaDeviceSynchronize) SUCCEEDS(cudaEventCreate) SUCCEEDS(cudaEventDestroy)
SUCCEEDS(cudaEventQuery) SUCCEEDS(cudaEventRecord) SUCCEEDS(cudaEventRecordWithFlags)
SUCCEEDS(cudaEventSynchronize) SUCCEEDS(cudaFreeAsync) 
SUCCEEDS(cudaFuncSetAttribute) SUCCEEDS(cudaGetLastError) SUCCEEDS(cudaGraphAddNode)
SUCCEEDS(cudaGraphConditionalHandleCreate) SUCCEEDS(cudaGraphDestroy)
SUCCEEDS(cudaGraphExecDestroy) SUCCEEDS(cudaGraphLaunch) SUCCEEDS(cudaHostRegister)
SUCCEEDS(cudaHostUnregister) SUCCEEDS(cudaKernelSetAttributeForDevice)
SUCCEEDS(cudaLaunchHostFunc) SUCCEEDS(cudaLaunchKernel) SUCCEEDS(cudaLaunchKernelExC)
SUCCEEDS(cudaLibraryUnload) SUCCEEDS(cudaMemPoolGetAttribute) SUCCEEDS(cudaMemPoolSetAttribute)
SUCCEEDS(cudaMemPoolTrimTo) SUCCEEDS(cudaMemcpyToSymbol) SUCCEEDS(cudaMemset)
SUCCEEDS(cudaPeekAtLastError) SUCCEEDS(cudaProfilerStart) SUCCEEDS(cudaProfilerStop)
SUCCEEDS(cudaStreamDestroy) SUCCEEDS(cudaStreamQuery) SUCCEEDS(cudaStreamSynchronize)
SUCCEEDS(cudaStreamUpdateCaptureDependencies) SUCCEEDS(cudaStreamWaitEvent)
SUCCEEDS(cudaThreadExchangeStreamCaptureMode)

/* The runtime. */
cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device) {
    *value = attribute(which);
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "stub");
    properties->major = sm() / 10;
    properties->minor = sm() % 10;
    properties->totalGlobalMem = memory;
    properties->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->maxThreadsPerBlock = 1024;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->sharedMemPerBlock = 49152;
    properties->sharedMemPerBlockOptin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    properties->sharedMemPerMultiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    properties->warpSize = 32;
    for (int axis = 0; axis < 3; axis++) {
        properties->maxGridSize[axis] = axis ? 65535 : 2147483647;
        properties->maxThreadsDim[axis] = axis < 2 ? 1024 : 64;
    }
    properties->l2CacheSize = 50 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = *greatest = 0;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *free_bytes = *total = memory;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **pointer, size_t size) {
    /* Sizes that a kernel should have written can be anything: do not exhaust the host. */
    *pointer = allocated + size > host_limit ? NULL : calloc(1, size);
    if (!*pointer) return cudaErrorMemoryAllocation;
    allocated += malloc_usable_size(*pointer);
    return cudaSuccess;
}
cudaError_t cudaFree(void *pointer) {
    allocated -= pointer ? malloc_usable_size(pointer) : 0;
    free(pointer);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    return cudaMalloc(pointer, size);
}
cudaError_t cudaFreeHost(void *pointer) { return cudaFree(pointer); }
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    memmove(to, from, size);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return cudaMemcpy(to, from, size, kind);
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) {
    memset(to, value, size);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    *stream = handle();
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    *stream = handle();
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = capturing && stream == capturing ? cudaStreamCaptureStatusActive
                                               : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *num_nodes) {
    if (id) *id = 1;
    return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    capturing = stream;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    capturing = 0;
    *graph = handle();
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph,
                                          unsigned long long flags) {
    *executable = handle();
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *num_nodes) {
    *num_nodes = 1;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    *event = handle();
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    *ms = 1;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->binaryVersion = attributes->ptxVersion = sm();
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *kernel,
                                                                   int size, size_t shared,
                                                                   unsigned flags) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *kernel, int size,
                                                          size_t shared) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *where) {
    memset(attributes, 0, sizeof *attributes);
    return cudaSuccess;
}

static CUresult nothing(void) { return CUDA_SUCCESS; }

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **pointer, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    *pointer = dlsym(RTLD_DEFAULT, name);
    if (!*pointer) *pointer = (void *)nothing;
    if (result) *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { *can = 0; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = 13000; return cudaSuccess; }

/* The driver. */
CUresult cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
    *value = attribute((int)which);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = handle();
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) { *context = (CUcontext)16; return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { *device = 0; return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 0; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = "stub";
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    *module = handle();
    return CUDA_SUCCESS;
}
CUresult cuModuleLoad(CUmodule *module, const char *path) {
    *module = handle();
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = handle();
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
    *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr pointer) {
    if (which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) *(CUdeviceptr *)value = pointer;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function,
                                      const CUlaunchConfig *config) {
    *count = 1;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction function, int size,
                                                     size_t shared) {
    *count = 1;
    return CUDA_SUCCESS;
}

/* cuBLAS: matrix products that compute nothing. */
#define CREATES(name)                                                                              \
    int name(void **created) { *created = handle(); return 0; }

CREATES(cublasCreate_v2)
CREATES(cublasLtMatmulDescCreate)
CREATES(cublasLtMatrixLayoutCreate)
CREATES(cublasLtMatmulPreferenceCreate)
SUCCEEDS(cublasDestroy_v2) SUCCEEDS(cublasSetStream_v2) SUCCEEDS(cublasSetWorkspace_v2)
SUCCEEDS(cublasSetMathMode) SUCCEEDS(cublasSetPointerMode_v2) SUCCEEDS(cublasSgemm_v2)
SUCCEEDS(cublasSgemmEx) SUCCEEDS(cublasSgemmStridedBatched) SUCCEEDS(cublasSgemv_v2)
SUCCEEDS(cublasGemmEx) SUCCEEDS(cublasGemmStridedBatchedEx) SUCCEEDS(cublasSdot_v2)
SUCCEEDS(cublasLtMatmul) SUCCEEDS(cublasLtMatmulDescDestroy)
SUCCEEDS(cublasLtMatmulDescSetAttribute) SUCCEEDS(cublasLtMatrixLayoutDestroy)
SUCCEEDS(cublasLtMatrixLayoutSetAttribute) SUCCEEDS(cublasLtMatmulPreferenceDestroy)
SUCCEEDS(cublasLtMatmulPreferenceSetAttribute)
int cublasGetMathMode(void *cublas, int *mode) { *mode = 0; return 0; }
int cublasGetPointerMode_v2(void *cublas, int *mode) { *mode = 0; return 0; }
int cublasLtMatmulAlgoGetHeuristic(void *cublas, void *operation, void *a, void *b, void *c, void *d,
                                   void *preference, int asked, void *results, int *given) {
    *given = 1;
    return 0;
}
