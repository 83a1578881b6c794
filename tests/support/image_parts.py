"""Parts of images for tests: ELF headers, layers, and a registry that can be written to."""

import gzip
import io
import itertools
import json
import re
import tarfile

from aiohttp import web
from scripted_registry import OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, Answer, ScriptedRegistry, digest_of, encode

# e_machine, EI_CLASS (1: 32 bits, 2: 64), EI_DATA (1: little, 2: big)
MACHINES = {
    "386": (3, 1, 1),
    "amd64": (62, 2, 1),
    "arm": (40, 1, 1),
    "arm64": (183, 2, 1),
    "loong64": (258, 2, 1),
    "mips": (8, 1, 2),
    "mipsle": (8, 1, 1),
    "mips64": (8, 2, 2),
    "mips64le": (8, 2, 1),
    "ppc64": (21, 2, 2),
    "ppc64le": (21, 2, 1),
    "riscv64": (243, 2, 1),
    "s390x": (22, 2, 2),
}
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
ATTESTATION = "application/vnd.in-toto+json"


def elf(architecture, size=4096):
    """The beginning of a program, and some more."""
    number, bits, order = MACHINES[architecture]
    endian = "little" if order == 1 else "big"
    head = b"\x7fELF" + bytes((bits, order, 1, 0)) + bytes(8) + (2).to_bytes(2, endian) + number.to_bytes(2, endian)
    return head + bytes(size - len(head))


def link(target):
    return ("link", target)


def hard_link(target):
    return ("hard", target)


FOLDER = ("folder", "")


def tar(members, *, format=tarfile.PAX_FORMAT, mode=0o755):
    """An archive of ``{path: bytes | link(…) | hard_link(…) | FOLDER}``."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for path, content in members.items():
            info = tarfile.TarInfo(path)
            info.mode = mode
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
                continue
            kind, target = content
            info.type = {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "folder": tarfile.DIRTYPE}[kind]
            info.linkname = target
            archive.addfile(info)
    return out.getvalue()


def layer(members, **more):
    """A compressed layer, the same bytes for the same members."""
    return gzip.compress(tar(members, **more), mtime=0)


def config_of(platform, **settings):
    os, architecture, *variant = platform.split("/")
    document = {"os": os, "architecture": architecture, "config": settings}
    if variant:
        document["variant"] = variant[0]
    return document


def put_image(registry, repository, tag, platform, layers=(), *, os_version="", salt="", media=None, **settings):
    """An image with these layers (from the bottom up) pushed into a scripted registry; its manifest's digest."""
    config = {**config_of(platform, **settings), "salt": salt}
    if os_version:
        config["os.version"] = os_version
    body = encode(config)
    manifest_type, config_type, layer_type = media or (OCI_MANIFEST, OCI_CONFIG, LAYER)
    manifest = {
        "schemaVersion": 2,
        "mediaType": manifest_type,
        "config": {"mediaType": config_type, "digest": registry.push_blob(repository, body), "size": len(body)},
        "layers": [
            {"mediaType": layer_type, "digest": registry.push_blob(repository, each), "size": len(each)}
            for each in layers
        ],
    }
    return registry.push(repository, tag, manifest)


def put_attestation(registry, repository, subject):
    """A manifest as builders attach it, and its descriptor in the index."""
    statement = encode({"_type": "https://in-toto.io/Statement/v0.1", "about": subject})
    empty = encode({"architecture": "unknown", "os": "unknown", "about": subject})
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": registry.push_blob(repository, empty), "size": len(empty)},
        "layers": [
            {"mediaType": ATTESTATION, "digest": registry.push_blob(repository, statement), "size": len(statement)}
        ],
    }
    body = encode(manifest)
    digest = registry.push(repository, None, body)
    return {
        "mediaType": OCI_MANIFEST,
        "digest": digest,
        "size": len(body),
        "annotations": {
            "vnd.docker.reference.digest": subject,
            "vnd.docker.reference.type": "attestation-manifest",
        },
        "platform": {"architecture": "unknown", "os": "unknown"},
    }


class WritableRegistry(ScriptedRegistry):
    """Takes uploads, and refuses a manifest of which a part is missing, as real ones do."""

    def __init__(self, *, mounts=True, referrers=False, deletes=True, **settings):
        super().__init__(**settings)
        self.mounts = mounts
        self.referrers = referrers  # whether it has the API that lists them
        self.deletes = deletes
        self.location = "/v2/{repository}/blobs/uploads/{number}"  # where the bytes of an upload go
        self.writers = None  # users who may write; None: everybody who is let in
        self.scopes_asked = []
        self.gate = None  # asked before each write: an answer in the place of the real one, or None
        self.slowly = None  # awaited before each upload
        self._numbers = itertools.count(1)
        self._scopes = {}  # token -> scopes

    @property
    def writes(self):
        """``METHOD path`` of everything that changes something, in order."""
        return [str(each) for each in self.seen if each.method not in ("GET", "HEAD") and each.path != "token"]

    @property
    def puts(self):
        return [each for each in self.writes if each.startswith("PUT")]

    def forget_requests(self):
        self.seen.clear()

    def _registry(self, request, path):
        if request.method in ("GET", "HEAD"):
            match = re.fullmatch(r"(.+)/referrers/([^/]+)", path)
            if match and self.referrers and self._refusal(request, path) is None:
                return self._referrers(*match.groups())
            return super()._registry(request, path)
        refused = self._refusal(request, path)
        if refused is not None:
            return refused
        instead = self.gate(request) if self.gate is not None else None
        if instead is not None:
            return web.Response(status=instead.status, body=instead.body, headers=instead.headers)
        body = request._read_bytes  # read by then; sync access to it is private
        if match := re.fullmatch(r"(.+)/blobs/uploads/", path):
            return self._begin(request, match[1])
        if match := re.fullmatch(r"(.+)/blobs/uploads/\d+", path):
            digest = request.query["digest"]
            if digest_of(body) != digest:
                return self._error(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
            self.blobs[match[1], digest] = body
            return web.Response(status=201, headers={"Docker-Content-Digest": digest})
        if match := re.fullmatch(r"(.+)/manifests/([^/]+)", path):
            if request.method == "DELETE":
                return self._delete(*match.groups())
            return self._put_manifest(request, *match.groups(), body)
        return self._error(404, "UNSUPPORTED", "no such place")

    def _referrers(self, repository, subject):
        found = []
        for (place, digest), (body, content_type) in self.manifests.items():
            document = json.loads(body)
            if place == repository and (document.get("subject") or {}).get("digest") == subject:
                found.append({"mediaType": content_type, "digest": digest, "size": len(body)})
        return web.json_response({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": found})

    def _delete(self, repository, selector):
        if not self.deletes:
            return self._error(405, "UNSUPPORTED", "the operation is unsupported")
        if ":" not in selector:
            found = self.tags.pop((repository, selector), None)
        else:
            found = self.manifests.pop((repository, selector), None)
            self.tags = {
                place: digest for place, digest in self.tags.items() if place[0] != repository or digest != selector
            }
        return web.Response(status=202) if found else self._error(404, "MANIFEST_UNKNOWN", "manifest unknown")

    def _begin(self, request, repository):
        digest, other = request.query.get("mount"), request.query.get("from")
        if digest and self.mounts and (other, digest) in self.blobs:
            self.blobs[repository, digest] = self.blobs[other, digest]
            return web.Response(status=201, headers={"Docker-Content-Digest": digest})
        location = self.location.format(repository=repository, number=next(self._numbers), host=self.host)
        return web.Response(status=202, headers={"Location": location})

    def _put_manifest(self, request, repository, selector, body):
        document, digest = json.loads(body), digest_of(body)
        if ":" in selector and selector != digest:
            return self._error(400, "DIGEST_INVALID", "not these bytes")
        blobs = [document["config"], *document["layers"]] if "config" in document else []
        for blob in blobs:
            if not blob.get("urls") and (repository, blob["digest"]) not in self.blobs:
                return self._error(400, "MANIFEST_BLOB_UNKNOWN", f"blob {blob['digest']} unknown to registry")
        for child in document.get("manifests", ()):
            if (repository, child["digest"]) not in self.manifests:
                return self._error(400, "MANIFEST_BLOB_UNKNOWN", f"manifest {child['digest']} unknown to registry")
        self.manifests[repository, digest] = (body, request.content_type)
        if ":" not in selector:
            self.tags[repository, selector] = digest
        headers = {"Docker-Content-Digest": digest}
        if self.referrers and document.get("subject"):
            headers["OCI-Subject"] = document["subject"]["digest"]
        return web.Response(status=201, headers=headers)

    def _refusal(self, request, path):
        refused = super()._refusal(request, path)
        if refused is None and self.auth and self.writers is not None and request.method not in ("GET", "HEAD"):
            repository = re.sub(r"/(manifests|blobs|referrers)/.*", "", path)
            if self._who(request, repository) not in self.writers:
                return self._error(403, "DENIED", "requested access to the resource is denied")
        return refused

    def token_answer(self, request):
        """What the token endpoint answers, for scripts that let some requests pass."""
        real = self._token(request, b"")
        return Answer(real.status, real.body, {"Content-Type": "application/json"})

    async def _handle(self, request):
        if self.slowly is not None and request.method == "PUT" and "/uploads/" in request.path:
            await self.slowly(request)
        return await super()._handle(request)

    def _token(self, request, body):
        answer = super()._token(request, body)
        if answer.status == 200:
            scopes = tuple(request.query.getall("scope", []))
            self.scopes_asked.append(scopes)
            self._scopes[json.loads(answer.body)["token"]] = scopes
        return answer

    def _who(self, request, repository):
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or self.auth != "bearer":
            return super()._who(request, repository)
        rights = {
            action
            for scope in self._scopes.get(value, ())
            if scope.startswith(f"repository:{repository}:")
            for action in scope.rpartition(":")[2].split(",")
        }
        wanted = {"GET": "pull", "HEAD": "pull", "DELETE": "delete"}.get(request.method, "push")
        return self._tokens[value][0] if value in self._tokens and rights & {wanted, "*"} else None
