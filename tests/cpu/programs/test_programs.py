"""`warptile run`: programs that know nothing of the emulator, from their first CUDA call to their exit code."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from warptile.cli.main import run
from warptile.programs.device_calls import Properties12
from warptile.programs.elf_file import ElfFile
from warptile.programs.run_program import read_program

pytestmark = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="whole programs run on x86-64 Linux"
)


def test_memory_variables_launches_and_events(program):
    code, out, err = program("""
n = 300
x = (c_float * n)(*range(n))
device = malloc(4 * n)
ok(cuda.cudaMemcpyToSymbol(c_void_p(host["factor"]), byref(c_float(3)), c_size_t(4), c_size_t(0), 1))
ok(cuda.cudaMemcpy(device, x, c_size_t(4 * n), 1))
stream, events = c_void_p(), (c_void_p(), c_void_p())
ok(cuda.cudaStreamCreate(byref(stream)))
for event in events:
    ok(cuda.cudaEventCreate(byref(event)))
    ok(cuda.cudaEventRecord(event, stream))
    ok(launch("scale", 3, 128, device, c_int(n)))
ok(cuda.cudaStreamSynchronize(stream))
milliseconds = c_float(-1)
ok(cuda.cudaEventElapsedTime(byref(milliseconds), *events))
assert 0 < milliseconds.value < 1e6
big = ctypes.create_string_buffer(struct.pack("<Qd50s", device.value, 100.0, bytes(49) + b"\\5"), 72)
ok(launch("shift", 1, 300, big))
ok(cuda.cudaMemcpy(x, device, c_size_t(4 * n), 4))
assert list(x) == [9 * i + 105 for i in range(n)]
count = c_int()
ok(cuda.cudaMemcpyFromSymbol(byref(count), c_void_p(host["calls"]), c_size_t(4), c_size_t(0), 2))
print("calls", count.value)
ok(cuda.cudaMemset(device, 1, c_size_t(4 * n)))
other = malloc(4 * n)
ok(cuda.cudaMemcpy(other, device, c_size_t(4 * n), 3))
ok(cuda.cudaMemcpy(x, other, c_size_t(8), 2))
assert bytes(x)[:9] == b"\\1" * 8 + bytes(x)[8:9]
ok(cuda.cudaFree(device))
sys.exit(7)
""")
    assert code == 7, err
    assert out == "calls 2\n"
    assert "scale" in err
    assert "shift" in err


def test_kernels_have_names(program):
    code, _, err = program("""
found = ctypes.c_char_p()
ok(cuda.cudaFuncGetName(byref(found), c_void_p(host["gather"])))
assert found.value == b"gather"
assert cuda.cudaFuncGetName(byref(found), c_void_p(host["calls"])) == 98
""")
    assert code == 0, err


def test_what_kernels_print_is_in_order(program):
    code, out, err = program("""
libc = ctypes.CDLL(None)
libc.printf(b"before\\n")
ok(launch("scale", 1, 32, malloc(4), c_int(-1)))
libc.printf(b"after\\n")
""")
    assert code == 0, err
    assert out == "before\ndevice -1\nafter\n"


def test_bugs_of_kernels_are_listed_and_the_program_goes_on(program):
    code, out, err = program("""
device = malloc(256)
ok(cuda.cudaMemset(device, 0, c_size_t(256)))
for _ in range(3):
    ok(launch("reverse", 1, 64, device, shared=256))
ok(cuda.cudaDeviceSynchronize())
print("done", flush=True)
""")
    assert (code, out) == (1, "done\n")
    assert err.count("DataRace: write-read race on shared memory") == 1
    assert "put __syncthreads() between the two accesses" in err
    assert "reverse" in err.splitlines()[-1]
    assert program("pass")[0] == 0


def test_a_kernel_that_fails_leaves_its_error_behind(program):
    code, out, _ = program("""
device = malloc(256)
ok(launch("scale", 1, 64, c_void_p(device.value + 128), c_int(64)))
for status in (cuda.cudaDeviceSynchronize(), cuda.cudaGetLastError(), cuda.cudaFree(device)):
    print(status, cuda.cudaGetErrorName(status).decode(), cuda.cudaGetErrorString(status).decode())
""")
    assert code == 1
    assert out == 3 * "700 cudaErrorIllegalAddress an illegal memory access was encountered\n"


def test_wrong_calls_return_what_cuda_returns_and_say_why(program):
    code, out, err = program("""
device = malloc(256)
host_array = (c_float * 64)()
print(launch("scale", 1, 2048, device, c_int(1)), launch("scale", 1, 32, device, c_int(1), shared=100_000))
print(cuda.cudaMemcpy(host_array, device, c_size_t(257), 2), cuda.cudaFree(c_void_p(device.value + 8)))
print(cuda.cudaGetLastError(), cuda.cudaGetLastError(), cuda.cudaSetDevice(3), cuda.cudaEventDestroy(c_void_p(5)))
print(cuda.cudaMemcpyToSymbol(c_void_p(5), host_array, c_size_t(4), c_size_t(0), 1))
for _ in range(2):
    print(cuda.cudaLaunchKernel(c_void_p(5), *[c_uint64(1)] * 4, None, c_size_t(0), None))
print(cuda.cudaFuncSetAttribute(c_void_p(host["scale"]), 8, 100_000))
print(launch("scale", 1, 32, device, c_int(0), shared=100_000))
""")
    assert code == 1, err
    assert out.split() == ["9", "1", "1", "1", "1", "0", "101", "400", "13", "98", "98", "0", "0"]
    assert [line for line in err.splitlines() if ": refused " in line] == [
        "launch of scale: refused 2 times", "cudaMemcpy: refused once", "cudaFree: refused once",
        "launch of an unknown kernel: refused 2 times",
    ]  # fmt: skip
    for said in (
        "a CTA has at most 1024 threads", "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize",
        "cudaMalloc 1 has 256 bytes, and 257 bytes from byte 0 on are wanted", "no allocation begins there",
        "device 3; there is device 0", "is no event", "is no variable that the program has registered",
        "is no kernel that the program has registered",
    ):  # fmt: skip
        assert err.count(said) == 1


@pytest.mark.parametrize(("grid", "captured", "code"), [(1, False, 0), (0, False, 1), (0, True, 1)])
def test_a_program_that_ignores_refused_launches_does_not_pass(program, grid, captured, code):
    capture = """
stream, graph, ready = c_void_p(), c_void_p(), c_void_p()
ok(cuda.cudaStreamCreate(byref(stream)))
ok(cuda.cudaStreamBeginCapture(stream, 0))
LAUNCH
ok(cuda.cudaStreamEndCapture(stream, byref(graph)))
ok(cuda.cudaGraphInstantiate(byref(ready), graph, c_uint64(0)))
cuda.cudaGraphLaunch(ready, stream)
"""
    body = f'launch("scale", {grid}, 32, malloc(256), c_int(0))'
    assert program(capture.replace("LAUNCH", body) if captured else body)[0] == code


def test_devices_occupancy_and_unknown_functions(program):
    code, out, err = program(
        """
count, value, properties = c_int(), c_int(), ctypes.create_string_buffer(4096)
ok(cuda.cudaGetDeviceCount(byref(count)))
ok(cuda.cudaGetDeviceProperties(properties, 0))
ok(cuda.cudaDeviceGetAttribute(byref(value), 97, 0))
print(count.value, properties.value.decode(), *struct.unpack_from("<2i", properties, 360), value.value)
ok(cuda.cudaOccupancyMaxActiveBlocksPerMultiprocessor(byref(value), c_void_p(host["scale"]), 256, c_size_t(0)))
print(value.value)
ok(cuda.cudaDeviceGetPCIBusId(properties, 13, 0))
ok(cuda.cudaDeviceGetByPCIBusId(byref(value), properties))
print(value.value, properties.value.decode(), cuda.cudaDeviceGetPCIBusId(properties, 12, 0))
""",
        "--arch", "sm_90a",
    )  # fmt: skip
    assert code == 0, err
    assert out == f"1 NVIDIA H200 (emulated) 9 0 {227 * 1024}\n8\n0 0000:00:00.0 1\n"


def test_every_known_property_has_the_place_that_cudas_header_gives_it(program):
    code, out, err = program(
        """
from cuda.bindings.runtime import cudaDeviceProp
properties = cudaDeviceProp()
ok(cuda.cudaGetDeviceProperties(c_void_p(properties.getPtr()), 0))
print(properties.multiProcessorCount, properties.concurrentKernels, properties.sharedMemPerMultiprocessor >> 10)
print(properties.managedMemory, properties.cooperativeLaunch, properties.clusterLaunch, properties.hostNumaId)
""",
        "--arch", "sm_90a",
    )  # fmt: skip
    assert code == 0, err
    assert out == "132 1 228\n1 1 1 0\n"


def test_properties_of_cuda_12_are_where_its_header_has_them():
    offsets = {"surfaceAlignment": 568, "concurrentKernels": 576, "sharedMemPerMultiprocessor": 640,
               "cooperativeLaunch": 688, "sharedMemPerBlockOptin": 696, "clusterLaunch": 772}  # fmt: skip
    assert {name: getattr(Properties12, name).offset for name in offsets} == offsets


DRIVER = """
import numpy as np
from cuda.bindings import driver, nvrtc
def ok(answer):
    status, *rest = answer
    assert int(status) == 0, status
    return rest[0] if len(rest) == 1 else rest
source = b'extern "C" __global__ void scale(float* x, float by, int n) { if (threadIdx.x < n) x[threadIdx.x] *= by; }'
made = ok(nvrtc.nvrtcCreateProgram(source, b"scale.cu", 0, [], []))
ok(nvrtc.nvrtcCompileProgram(made, 1, [b"-arch=compute_80"]))
ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(made))
ok(nvrtc.nvrtcGetPTX(made, ptx))
ok(driver.cuInit(0))
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))))
kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(ptx)), b"scale"))
x = np.arange(100, dtype=np.float32)
device = ok(driver.cuMemAlloc(x.nbytes))
ok(driver.cuMemcpyHtoD(device, x.ctypes.data, x.nbytes))
values = [np.array([int(device)], np.uint64), np.array([3], np.float32), np.array([100], np.int32)]
places = np.array([each.ctypes.data for each in values], np.uint64)
ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 128, 1, 1, 0, 0, places.ctypes.data, 0))
ok(driver.cuMemcpyDtoH(x.ctypes.data, device, x.nbytes))
print(x[:4].tolist(), driver.cuModuleLoadData(b"\\x7fELF"), driver.cuGetErrorName(driver.CUresult(700))[1].decode())
"""


def test_a_python_program_of_the_driver(tmp_path, capfd):
    (tmp_path / "driver.py").write_text(DRIVER)
    assert run(["run", "--arch", "sm_80", sys.executable, str(tmp_path / "driver.py")]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("[0.0, 3.0, 6.0, 9.0]")
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in out
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in out
    assert "the module is machine code; compile it to PTX" in err


COMPILED = """
#include <cstdio>
#include <cuda_runtime.h>
__device__ int sum;
template <typename T> __global__ void add(const T* x, int n) {
  if (threadIdx.x < n) atomicAdd(&sum, (int)x[threadIdx.x]);
}
int main(int argc, char** argv) {
  int x[64], *device, found;
  for (int i = 0; i < 64; i++) x[i] = i;
  cudaMalloc(&device, sizeof x);
  cudaMemcpy(device, x, sizeof x, cudaMemcpyHostToDevice);
  add<int><<<1, 64>>>(device, argc > 1 ? 64 : 10);
  cudaMemcpyFromSymbol(&found, sum, sizeof found);
  cudaGraph_t graph{};
  printf("%d %s\\n", found, cudaGetErrorName(cudaGraphDebugDotPrint(graph, "", 0)));
  return found != (argc > 1 ? 2016 : 45);
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_a_program_that_nvcc_compiled(tmp_path, capfd):
    source, made = tmp_path / "sum.cu", tmp_path / "sum"
    source.write_text(COMPILED)
    options = ["-cudart", "shared", "-lineinfo", "-gencode", "arch=compute_90a,code=compute_90a"]
    subprocess.run(["nvcc", *options, str(source), "-o", str(made)], check=True, capture_output=True)
    found = read_program(made)
    assert found.arch == "sm_90a"
    assert "cudaMalloc" in found.functions
    assert [run(["run", str(made)]), run(["run", str(made), "all"])] == [0, 0]
    out, err = capfd.readouterr()
    assert out == "45 cudaErrorNotSupported\n2016 cudaErrorNotSupported\n"
    assert "cudaGraphDebugDotPrint: this function is not emulated" in err


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_a_program_that_is_compiled_first(tmp_path, capfd):
    source = tmp_path / "sum.cu"
    source.write_text(COMPILED.replace("2016", "WANTED"))
    assert run(["run", "--nvcc", "-D WANTED=2016 -O1", "--arch", "sm_80", str(source), "all"]) == 0
    out, err = capfd.readouterr()
    assert out == "2016 cudaErrorNotSupported\n"
    assert "sum.cu, emulated as sm_80" in err
    assert run(["run", str(source)]) == 1
    assert "WANTED" in capfd.readouterr().err
    assert run(["run", str(source), "--nvcc", "-D WANTED=2016"]) == 1
    assert "--nvcc stands behind the program" in capfd.readouterr().err


def test_a_program_that_cannot_be_compiled_says_how(tmp_path, capfd, monkeypatch):
    source = tmp_path / "sum.cu"
    source.write_text(COMPILED)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["run", str(source)]) == 4
    assert "there is no nvcc to compile it; where there is one: nvcc -cudart shared" in capfd.readouterr().err


TEXTURES = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void plane(float* y, cudaTextureObject_t t, float by) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = tex2D<float>(t, threadIdx.x * by + 0.5f, blockIdx.x + 0.5f);
}
__global__ void row(int* y, cudaTextureObject_t t) {
  int2 found = tex1Dfetch<int2>(t, threadIdx.x);
  y[threadIdx.x] = 100 * found.x + found.y;
}
__global__ void layers(float* y, cudaTextureObject_t t) {
  y[threadIdx.x] = tex2DLayered<float>(t, 1.5f, 1.5f, threadIdx.x);
}
__global__ void add(cudaSurfaceObject_t s) {
  float found = surf2Dread<float>(s, 4 * threadIdx.x, blockIdx.x);
  surf2Dwrite(found + 1, s, 4 * threadIdx.x, blockIdx.x);
}
#define OK(call) if (cudaError_t e = call) { printf("%s: %s\\n", #call, cudaGetErrorName(e)); return 1; }
#define IS(wanted, found) if ((found) != (wanted)) { printf("%s is %g\\n", #found, double(found)); return 1; }
int main() {
  float x[2][4][8], y[32], *out;
  for (int i = 0; i < 64; i++) (&x[0][0][0])[i] = i;
  OK(cudaMalloc(&out, sizeof x));
  cudaChannelFormatDesc real = cudaCreateChannelDesc<float>();
  cudaArray_t array, volume;
  OK(cudaMallocArray(&array, &real, 8, 4, cudaArraySurfaceLoadStore));
  OK(cudaMemcpy2DToArray(array, 0, 0, x, 32, 32, 4, cudaMemcpyHostToDevice));
  if (cudaMemcpy2DToArray(array, 4, 0, x, 32, 32, 4, cudaMemcpyHostToDevice) != cudaErrorInvalidValue) return 2;
  cudaResourceDesc of = {};
  of.resType = cudaResourceTypeArray;
  of.res.array.array = array;
  cudaTextureDesc how = {};
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
  how.filterMode = cudaFilterModeLinear;
  cudaTextureObject_t texture, whole, stacked;
  cudaSurfaceObject_t surface;
  OK(cudaCreateTextureObject(&texture, &of, &how, nullptr));
  OK(cudaCreateSurfaceObject(&surface, &of));
  add<<<4, 8>>>(surface);
  plane<<<4, 8>>>(out, texture, 0.5f);
  OK(cudaMemcpy(y, out, sizeof y, cudaMemcpyDeviceToHost));
  IS(1, y[0]); IS(4.5f, y[7]); IS(28.5f, y[31]);
  OK(cudaMemcpy2DFromArray(y, 32, array, 0, 0, 32, 4, cudaMemcpyDeviceToHost));
  IS(32, y[31]);
  int2 pairs[3] = {{1, 2}, {3, 4}, {5, 6}}, *memory;
  OK(cudaMalloc(&memory, sizeof pairs));
  OK(cudaMemcpy(memory, pairs, sizeof pairs, cudaMemcpyHostToDevice));
  cudaResourceDesc line = {};
  line.resType = cudaResourceTypeLinear;
  line.res.linear.devPtr = memory;
  line.res.linear.desc = cudaCreateChannelDesc<int2>();
  line.res.linear.sizeInBytes = sizeof pairs;
  cudaTextureDesc plain = {};
  OK(cudaCreateTextureObject(&whole, &line, &plain, nullptr));
  row<<<1, 4>>>((int*)out, whole);
  int numbers[4];
  OK(cudaMemcpy(numbers, out, sizeof numbers, cudaMemcpyDeviceToHost));
  IS(102, numbers[0]); IS(506, numbers[2]); IS(0, numbers[3]);
  OK(cudaMalloc3DArray(&volume, &real, make_cudaExtent(8, 4, 2), cudaArrayLayered));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(x, 32, 8, 4);
  copy.dstArray = volume;
  copy.extent = make_cudaExtent(8, 4, 2);
  copy.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&copy));
  of.res.array.array = volume;
  OK(cudaCreateTextureObject(&stacked, &of, &how, nullptr));
  layers<<<1, 2>>>(out, stacked);
  OK(cudaMemcpy(y, out, 8, cudaMemcpyDeviceToHost));
  IS(9, y[0]); IS(41, y[1]);
  OK(cudaDestroySurfaceObject(surface));
  OK(cudaDestroyTextureObject(texture));
  OK(cudaFreeArray(array));
  cudaMipmappedArray_t levels;
  IS(cudaErrorNotSupported, cudaMallocMipmappedArray(&levels, &real, make_cudaExtent(8, 8, 0), 2));
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_textures_and_surfaces(tmp_path, capfd):
    source, made = tmp_path / "textures.cu", tmp_path / "textures"
    source.write_text(TEXTURES)
    options = ["-cudart", "shared", "-lineinfo", "-gencode", "arch=compute_90a,code=compute_90a"]
    subprocess.run(["nvcc", *options, str(source), "-o", str(made)], check=True, capture_output=True)
    assert run(["run", str(made)]) == 0, capfd.readouterr()


def test_a_misspelt_option_runs_nothing(capfd):
    """Else each launch would be refused, and a program that looks at no error ends well, with nothing checked."""
    for option, said in (("--schedule", "it takes latest, earliest or random:SEED"), ("--arch", "it takes sm_75")):
        assert run(["run", option, "lastest", sys.executable, "-c", "print('ran')"]) == 2
        told = capfd.readouterr()
        assert told.out == ""
        assert f"got 'lastest'; {said}" in " ".join(told.err.split())


def test_what_is_no_program(tmp_path, capfd):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert run(["run", str(script)]) == 2
    script.chmod(0o755)
    assert run(["run", str(script)]) == 2
    said = capfd.readouterr().err
    assert "no executable file, such as ./program, nor a .cu file" in said
    assert "is a script; give an executable that nvcc linked, such as ./program, or the Python" in said
    assert sys.executable in said
    script.write_bytes(Path(sys.executable).read_bytes()[:4000])
    assert run(["run", str(script)]) == 2
    assert "is cut short" in capfd.readouterr().err
    script.write_text("text")
    assert run(["run", str(script)]) == 2
    assert "is no 64-bit ELF file" in capfd.readouterr().err


def test_elf_files():
    elf = ElfFile(Path("/proc/self/exe").read_bytes())
    assert any(name.startswith(("libc.so", "libpython")) for name in elf.needed)
    assert elf.section(".text")
    assert elf.section(".nv_fatbin") == b""
    assert any(version and version.startswith("GLIBC") for version in elf.undefined.values())
