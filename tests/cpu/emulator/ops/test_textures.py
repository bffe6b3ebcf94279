"""Textures and surfaces: what is read between, beside and outside of their texels."""

import numpy as np
import pytest

from emulation import compiled
from warptile.emulator import DeviceMemory, emulate
from warptile.errors import IllegalAddress, IllegalInstruction, UninitializedRead
from warptile.launch.params import Scalar
from warptile.launch.spec import LaunchSpec
from warptile.launch.texture import BORDER, CLAMP, FLOAT, MIRROR, SIGNED, UNSIGNED, WRAP, Texture

KERNELS = """
extern "C" __global__ void along(float* y, cudaTextureObject_t t, const float* x) {
  y[threadIdx.x] = tex1D<float>(t, x[threadIdx.x]);
}
extern "C" __global__ void plane(float* z, cudaTextureObject_t t, const float* x, const float* y) {
  z[threadIdx.x] = tex2D<float>(t, x[threadIdx.x], y[threadIdx.x]);
}
extern "C" __global__ void volume(float* z, cudaTextureObject_t t, const float* x) {
  z[threadIdx.x] = tex3D<float>(t, x[threadIdx.x], 1.5f, 1.25f);
}
extern "C" __global__ void layer(float* z, cudaTextureObject_t t, const int* layers) {
  z[threadIdx.x] = tex2DLayered<float>(t, 1.5f, 0.5f, layers[threadIdx.x]);
}
extern "C" __global__ void pairs(int* z, cudaTextureObject_t t) {
  short2 found = tex1Dfetch<short2>(t, (int)threadIdx.x - 1);
  z[threadIdx.x] = 1000 * found.x + found.y;
}
extern "C" __global__ void shares(float* z, cudaTextureObject_t t, const float* x) {
  float4 found = tex1D<float4>(t, x[threadIdx.x]);
  z[threadIdx.x] = found.x + 10 * found.y + 100 * found.z + 1000 * found.w;
}
extern "C" __global__ void corners(float4* z, cudaTextureObject_t t) { z[0] = tex2Dgather<float4>(t, 1.f, 1.f, 0); }
extern "C" __global__ void add_one(cudaSurfaceObject_t s) {
  float2 found;
  surf2Dread(&found, s, 8 * threadIdx.x, threadIdx.y);
  surf2Dwrite(make_float2(found.x + 1, found.y - 1), s, 8 * threadIdx.x, threadIdx.y);
}
extern "C" __global__ void beyond(cudaSurfaceObject_t s) { surf2Dwrite(7.f, s, threadIdx.x, 0); }
extern "C" __global__ void kept(cudaSurfaceObject_t s) {
  surf2Dwrite(7.f, s, 4 * ((int)threadIdx.x - 1), 0, cudaBoundaryModeZero);
}
"""
F16_BITS = 16


def run(name, threads, texels, texture, *inputs, surface=False, result=np.float32, each=1):
    """What a kernel writes, or what the surface holds afterwards."""
    device = DeviceMemory()
    place = device.place("texels", np.ascontiguousarray(texels))
    described = Texture(place, *texture.pop("shape"), *texture.pop("of"), **texture, surface=surface)
    handle = device.place("object", described.encode(), writable=False)
    count = int(np.prod(threads))
    out = device.allocate("z", 16 * count)
    places = [device.place(f"x{i}", np.ascontiguousarray(each)) for i, each in enumerate(inputs)]
    entry, module = compiled(KERNELS, name, "sm_90a")
    given = [handle] if surface else [out, handle, *places]
    spec = LaunchSpec(entry, (1, 1, 1), threads, tuple(Scalar("u64", each) for each in given))
    emulate(module, spec, {}, arch="sm_90a", device=device)
    if surface:
        return np.frombuffer(device.read(place, texels.nbytes), texels.dtype).reshape(texels.shape)
    return np.frombuffer(device.read(out, count * each * np.dtype(result).itemsize), result)


def line(count, **options):
    """A row of floats."""
    return {"shape": (count, 0, 0, 0), "of": (4 * count, 1, 32, FLOAT), **options}


POINTS = np.array([-0.25, 0, 0.99, 1, 3.5, 3.99, 4, 5.5], np.float32)
TEXELS = np.array([10, 20, 30, 40], np.float32)


@pytest.mark.parametrize(
    ("outside", "found"),
    [(CLAMP, [10, 10, 10, 20, 40, 40, 40, 40]), (BORDER, [-1, 10, 10, 20, 40, 40, -1, -1])],
)
def test_the_texel_that_holds_a_point(outside, found):
    options = line(4, outside=(outside,) * 3, border=(-1.0, 0.0, 0.0, 0.0))
    assert run("along", (8, 1, 1), TEXELS, options, POINTS).tolist() == found


@pytest.mark.parametrize(
    ("outside", "found"),
    [
        (CLAMP, [10, 10, 10, 20, 40, 40, 40, 40]), (BORDER, [0, 10, 10, 20, 40, 40, 0, 0]),
        (WRAP, [40, 10, 10, 20, 40, 40, 10, 20]), (MIRROR, [10, 10, 10, 20, 40, 40, 40, 30]),
    ],
)  # fmt: skip
def test_coordinates_that_go_from_0_to_1(outside, found):
    options = line(4, outside=(outside,) * 3, normalized=True)
    assert run("along", (8, 1, 1), TEXELS, options, POINTS / 4).tolist() == found


def test_values_between_texels_have_weights_of_8_bits():
    """Texel i lies at i + 0.5; a weight of 0.001 is 0, and one of 0.3 is 77/256."""
    points = np.array([0, 0.5, 1, 1.501, 1.8, 3.5, 9], np.float32)
    found = run("along", (7, 1, 1), TEXELS, line(4, outside=(CLAMP,) * 3, linear=True), points)
    assert found.tolist() == [10, 10, 15, 20, 20 + 10 * 77 / 256, 40, 40]
    edges = line(4, outside=(WRAP,) * 3, linear=True, normalized=True)
    assert run("along", (2, 1, 1), TEXELS, edges, np.array([0, 1], np.float32)).tolist() == [25, 25]
    edges = line(4, linear=True)
    assert run("along", (2, 1, 1), TEXELS, edges, np.array([0, 4], np.float32)).tolist() == [5, 20]


def test_planes_and_volumes():
    texels = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    plane = {"shape": (3, 3, 0, 0), "of": (16, 1, 32, FLOAT), "outside": (CLAMP,) * 3, "linear": True}  # of rows of 4
    points = np.array([1, 2.5], np.float32), np.array([1, 2.25], np.float32)
    assert run("plane", (2, 1, 1), texels[0], plane, *points).tolist() == [2.5, 9]
    volume = {"shape": (4, 3, 2, 0), "of": (16, 1, 32, FLOAT), "outside": (CLAMP,) * 3, "linear": True}
    assert run("volume", (2, 1, 1), texels, volume, points[0]).tolist() == [0.5 + 4 + 9, 2 + 4 + 9]
    layers = {"shape": (4, 3, 0, 2), "of": (16, 1, 32, FLOAT)}
    assert run("layer", (4, 1, 1), texels, layers, np.array([-1, 0, 1, 7], np.int32)).tolist() == [1, 1, 13, 13]


def test_gathering():
    """Counter-clockwise from the lower left, where y grows downwards."""
    texels = np.arange(16, dtype=np.float32).reshape(4, 4)
    options = {"shape": (4, 4, 0, 0), "of": (16, 1, 32, FLOAT)}
    assert run("corners", (1, 1, 1), texels, options, each=4).tolist() == [4, 5, 1, 0]


def test_types_of_texels():
    texels = np.array([[1, -2], [3, 4], [5, 6]], np.int16)
    options = {"shape": (3, 0, 0, 0), "of": (12, 2, 16, SIGNED)}
    assert run("pairs", (5, 1, 1), texels, options, result=np.int32).tolist() == [0, 998, 3004, 5006, 0]
    texels = np.array([[0, 255, 51, 102]], np.uint8)
    options = {"shape": (1, 0, 0, 0), "of": (4, 4, 8, UNSIGNED), "as_float": True}
    point = np.array([0.5], np.float32)
    assert run("shares", (1, 1, 1), texels, options, point) == pytest.approx([10 + 20 + 400])
    texels = np.array([-128, -127, 64], np.int8)
    options = {"shape": (3, 0, 0, 0), "of": (3, 1, 8, SIGNED), "as_float": True}
    points = np.array([0.5, 1.5, 2.5], np.float32)
    assert run("along", (3, 1, 1), texels, options, points).tolist() == [-1, -1, np.float32(64) / np.float32(127)]
    halves = np.array([1.5, 2.5], np.float16)
    options = {"shape": (2, 0, 0, 0), "of": (4, 1, F16_BITS, FLOAT), "linear": True}
    assert run("along", (1, 1, 1), halves, options, np.array([1], np.float32)).tolist() == [2]


def test_surfaces():
    texels = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    options = {"shape": (4, 3, 0, 0), "of": (32, 2, 32, FLOAT)}
    after = run("add_one", (4, 3, 1), texels, options, surface=True)
    assert (after == texels + np.array([1, -1])).all()
    row = {"shape": (2, 1, 0, 0), "of": (8, 1, 32, FLOAT)}
    texels = np.zeros(2, np.float32)
    assert run("kept", (4, 1, 1), texels, dict(row), surface=True).tolist() == [7, 7]
    with pytest.raises(IllegalAddress, match=r"4 bytes at byte 5 of a row.* surface of 2 x 1 .*x counts bytes"):
        run("beyond", (9, 1, 1), texels, dict(row), surface=True)


def test_what_is_no_texture():
    with pytest.raises(IllegalInstruction, match=r"object is 2d, the instruction reads 1d"):
        run("along", (1, 1, 1), TEXELS, {"shape": (2, 2, 0, 0), "of": (8, 1, 32, FLOAT)}, POINTS)
    device = DeviceMemory()
    entry, module = compiled(KERNELS, "beyond", "sm_90a")
    texture = device.place("t", Texture(0, 1, 1, 0, 0, 4, 1, 32, FLOAT).encode())
    spec = LaunchSpec(entry, (1, 1, 1), (1, 1, 1), (Scalar("u64", texture),))
    with pytest.raises(IllegalInstruction, match=r"is no surface object"):
        emulate(module, spec, {}, arch="sm_90a", device=device)


def test_texels_that_nothing_has_written():
    device = DeviceMemory()
    entry, module = compiled(KERNELS, "along", "sm_90a")
    texels, out = device.allocate("texels", 16), device.allocate("z", 16)
    x = device.place("x", POINTS)
    texture = device.place("t", Texture(texels, 4, 0, 0, 0, 16, 1, 32, FLOAT).encode())
    arguments = tuple(Scalar("u64", each) for each in (out, texture, x))
    spec = LaunchSpec(entry, (1, 1, 1), (2, 1, 1), arguments)
    with pytest.raises(UninitializedRead, match=r"texels\+0"):
        emulate(module, spec, {}, arch="sm_90a", device=device)
