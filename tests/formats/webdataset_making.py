"""WebDataset shards for tests."""

import io
import json
import tarfile


def write_shard(path, samples, mode="w"):
    """Write samples, (key, {extension: bytes, text, number or dict}), as webdataset stores them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for key, parts in samples:
            for ending, value in parts.items():
                data = json.dumps(value) if isinstance(value, dict) else value
                data = data if isinstance(data, bytes) else str(data).encode()
                info = tarfile.TarInfo(f"{key}.{ending}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return path
