"""Layouts as builds leave them, to be spoilt."""

import hashlib
import json
from pathlib import Path
from typing import Any

from polyarch.oci.documents import OCI_MANIFEST

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"


class LayoutFolder:
    """An OCI layout with one image. Every document can be changed before it is written."""

    def __init__(self, root: Path, *, platform: dict[str, Any] | None = None, layers: int = 2) -> None:
        self.root = root
        self.blobs = root / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        self.layers = [self.put(b"layer %d" % at * 100) for at in range(layers)]
        config = {"os": "linux", "architecture": "arm64", "rootfs": {"type": "layers", "diff_ids": []}}
        self.config = self.put(json.dumps({**config, **(platform or {})}).encode())
        self.write()

    def put(self, body: bytes) -> tuple[str, int]:
        digest = hashlib.sha256(body).hexdigest()
        (self.blobs / digest).write_bytes(body)
        return f"sha256:{digest}", len(body)

    def path(self, digest: str) -> Path:
        return self.blobs / digest.partition(":")[2]

    def write(self, **more: Any) -> str:
        """Manifest and index; ``more`` are members of the manifest. Returns its digest."""
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": CONFIG_TYPE, "digest": self.config[0], "size": self.config[1]},
            "layers": [{"mediaType": LAYER_TYPE, "digest": digest, "size": size} for digest, size in self.layers],
            **more,
        }
        self.manifest = self.put(json.dumps(document).encode())
        self.index({"mediaType": OCI_MANIFEST, "digest": self.manifest[0], "size": self.manifest[1]})
        (self.root / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        return self.manifest[0]

    def index(self, *entries: dict[str, Any]) -> None:
        (self.root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": list(entries)}))
