"""Picture files made byte by byte, for what TensorFlow cannot write: palettes, CMYK, Exif."""

import struct
import zlib

import numpy as np
import tensorflow as tf


def gradient(height, width, *, seed=0):
    """A smooth picture that differs in every corner and channel."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        255 * x / max(width - 1, 1),
        255 * y / max(height - 1, 1),
        np.full((height, width), 40.0 + 37 * seed % 200),
    ]
    return np.round(np.stack(planes, -1)).astype(np.uint8)


def jpeg(pixels, quality=95):
    return tf.io.encode_jpeg(pixels, quality=quality, chroma_downsampling=False).numpy()


def png(pixels):
    return tf.io.encode_png(pixels).numpy()


def exif(contents, orientation, *, order="<", offset=8):
    """A JPEG with an Exif block that says how the camera was held."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    maker = struct.pack(order + "HHII", 0x10F, 2, 4, int.from_bytes(b"cam\0", "little"))
    way = struct.pack(order + "HHIHH", 0x112, 3, 1, orientation, 0)
    tiff = mark + struct.pack(order + "I", offset) + bytes(offset - 8)
    tiff += struct.pack(order + "H", 2) + maker + way + struct.pack(order + "I", 0)
    block = b"Exif\0\0" + tiff
    return contents[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + contents[2:]


def held(pixels, orientation):
    """What the sensor saw of an upright picture when the camera was held so."""
    undo = {
        1: lambda image: image,
        2: lambda image: image[:, ::-1],
        3: lambda image: image[::-1, ::-1],
        4: lambda image: image[::-1],
        5: lambda image: image.transpose(1, 0, 2),
        6: lambda image: image[:, ::-1].transpose(1, 0, 2),
        7: lambda image: image[::-1, ::-1].transpose(1, 0, 2),
        8: lambda image: image[::-1].transpose(1, 0, 2),
    }
    return np.ascontiguousarray(undo[orientation](pixels))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def palette_png(numbers, *, depth=8):
    """A mask as it is often kept: class numbers with a colour for each."""
    height, width = numbers.shape
    bits = np.unpackbits(numbers[..., None].astype(np.uint8), axis=-1)[..., 8 - depth :].reshape(height, -1)
    rows = np.packbits(bits, axis=1)
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    colours = bytes(np.random.default_rng(0).integers(0, 256, 3 * 2**depth, np.uint8))
    header = struct.pack(">IIBBBBB", width, height, depth, 3, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"PLTE", colours)
        + chunk(b"tRNS", b"\0")
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


def bmp(pixels):
    """24 bits, from the bottom up, blue first."""
    height, width, _ = pixels.shape
    rows = [row[:, ::-1].tobytes().ljust((3 * width + 3) // 4 * 4, b"\0") for row in pixels[::-1]]
    body = b"".join(rows)
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(body), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + head + body


def gif(frames):
    """Frames of one colour each, two pixels wide and high."""
    data = b"GIF89a" + struct.pack("<HHBBB", 2, 2, 0xF1, 0, 0)
    data += b"".join(bytes(colour) for colour in (*frames, *[(0, 0, 0)] * (4 - len(frames))))
    for at in range(len(frames)):
        codes = [4, at, at, at, at, 5]  # clear, four pixels, end; three bits each
        packed = sum(code << (3 * place) for place, code in enumerate(codes)).to_bytes(3, "little")
        data += b"!\xf9\x04\x04\x0a\x00\x00\x00," + struct.pack("<HHHHB", 0, 0, 2, 2, 0) + b"\x02\x03" + packed + b"\0"
    return data + b";"


def cmyk_jpeg(cyan, magenta, yellow, black):
    """One block of one colour in four inks, kept inverted as Adobe's programs do."""
    segment = lambda marker, data: b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data  # noqa: E731
    # Code lengths: nine categories of four bits for the mean, one code for "no detail".
    means = bytes([0, 0, 0, 9, *[0] * 12]) + bytes(range(9))
    details = bytes([1, *[0] * 15]) + b"\0"
    bits = ""
    for ink in (cyan, magenta, yellow, black):
        mean = 8 * (255 - ink - 128) // 8
        category = abs(mean).bit_length()
        value = mean if mean > 0 else mean + (1 << category) - 1
        bits += f"{category:04b}" + (f"{value:0{category}b}" if category else "") + "0"
    bits += "1" * (-len(bits) % 8)
    body = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    components = b"".join(bytes([number, 0x11, 0]) for number in (1, 2, 3, 4))
    return (
        b"\xff\xd8"
        + segment(0xEE, b"Adobe\0\x64\0\0\0\0\0")
        + segment(0xDB, b"\0" + bytes([8] * 64))
        + segment(0xC0, b"\x08" + struct.pack(">HH", 8, 8) + b"\x04" + components)
        + segment(0xC4, b"\x00" + means)
        + segment(0xC4, b"\x10" + details)
        + segment(0xDA, b"\x04" + b"".join(bytes([number, 0]) for number in (1, 2, 3, 4)) + b"\0\x3f\0")
        + body
        + b"\xff\xd9"
    )


def folder(root, count=8, classes=2, size=(24, 32)):
    """A folder of small pictures, one folder for each class."""
    for index in range(count):
        path = root / f"class{index % classes}" / f"{index:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(gradient(*size, seed=index)))
    return root
