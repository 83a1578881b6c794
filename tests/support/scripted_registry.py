"""A registry on loopback that does as it is told: right, wrong, late, or not at all.

It serves what is pushed into it, asks for credentials the way it was set up to, writes down every request, and plays
scripts: answers that take the place of the real one, once each and in order.
"""

import asyncio
import base64
import hashlib
import json
import re
from dataclasses import dataclass, field

from aiohttp import web

BODY = web.RequestKey("body", bytes)

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass(frozen=True)
class Seen:
    """One request as it arrived. ``path`` is below ``/v2/``; ``token`` for the token endpoint."""

    method: str
    path: str
    query: str
    headers: dict
    body: bytes = b""

    def __str__(self):
        return f"{self.method} {self.path}"


@dataclass
class Answer:
    """What a script answers; ``drop`` closes the connection after ``body`` was sent under a longer Content-Length."""

    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=dict)
    delay: float = 0.0
    drop: bool = False


@dataclass
class _Script:
    method: str
    pattern: re.Pattern
    answers: list
    forever: bool = False


def digest_of(body, algorithm="sha256"):
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def encode(document):
    return json.dumps(document, separators=(",", ":")).encode()


class ScriptedRegistry:
    """``async with`` starts and stops it. ``auth`` is ``None``, ``"basic"`` or ``"bearer"``."""

    def __init__(self, *, auth=None, ssl_context=None):
        self.auth = auth
        self.users = {}  # user -> password
        self.readers = {}  # repository -> users who may read it; absent: everybody who is let in
        self.public = set()  # repositories that anonymous may read although auth is on
        self.identity_tokens = {}  # identity token -> user
        self.manifests = {}  # (repository, digest) -> (body, content type)
        self.tags = {}  # (repository, tag) -> digest
        self.blobs = {}  # (repository, digest) -> body
        self.seen = []
        self.concurrent = 0
        self.most_concurrent = 0
        self.delay = 0.0
        self.headers = {}  # added to every answer below /v2/
        self.figures = {}  # user ("" for anonymous) -> headers of the manifests that they are given
        self.token_life = 300
        self.realm = None  # stands in for the realm of the challenge
        self._scripts = []
        self._tokens = {}  # token -> (user, scope)
        self._ssl = ssl_context
        self._runner = None
        self.host = ""

    # -- content -----------------------------------------------------------------------------------------------------

    def push_blob(self, repository, body):
        digest = digest_of(body)
        self.blobs[repository, digest] = body
        return digest

    def push(self, repository, tag, document, content_type=None, *, digest=None):
        """Any document under a tag (or none), as bytes or as a mapping; returns its digest."""
        body = document if isinstance(document, bytes) else encode(document)
        digest = digest or digest_of(body)
        if content_type is None:
            content_type = document.get("mediaType", OCI_MANIFEST) if isinstance(document, dict) else OCI_MANIFEST
        self.manifests[repository, digest] = (body, content_type)
        if tag is not None:
            self.tags[repository, tag] = digest
        return digest

    def push_image(self, repository, tag, platform="linux/amd64", *, labels=None, salt="", **config):
        """A single image; returns the digest of its manifest."""
        if platform is not None:
            os, architecture, *variant = platform.split("/")
            config = {"os": os, "architecture": architecture, **({"variant": variant[0]} if variant else {}), **config}
        config = {**config, "config": {"Labels": labels or {}}, "salt": f"{repository}{tag}{salt}"}
        body = encode(config)
        digest = self.push_blob(repository, body)
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": OCI_CONFIG, "digest": digest, "size": len(body)},
            "layers": [],
        }
        return self.push(repository, tag, manifest)

    def entry(self, platform, digest=None, **more):
        """A descriptor for ``push_index``; without a digest one of nothing in particular."""
        digest = digest or digest_of(f"{platform}{sorted(more)}".encode())
        found = {"mediaType": OCI_MANIFEST, "digest": digest, "size": 500, **more}
        if platform is not None:
            os, architecture, *variant = platform.split("/")
            found["platform"] = {
                "os": os,
                "architecture": architecture,
                **({"variant": variant[0]} if variant else {}),
            }
        return found

    def push_index(self, repository, tag, *platforms, entries=(), annotations=None):
        """An index of these platforms (its children need not exist) and these entries; returns its digest."""
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_INDEX,
            "manifests": [*(self.entry(platform) for platform in platforms), *entries],
        }
        if annotations:
            document["annotations"] = annotations
        return self.push(repository, tag, document)

    # -- behaviour ---------------------------------------------------------------------------------------------------

    def script(self, method, pattern, *answers, forever=False):
        """These answers, once each and in order, for requests whose path (below /v2/, or ``token``) matches."""
        self._scripts.append(_Script(method, re.compile(pattern), list(answers), forever))

    def clear_scripts(self):
        self._scripts.clear()

    def requests(self, method="", pattern=""):
        """``METHOD path`` of the requests so far."""
        return [str(each) for each in self.seen if method in ("", each.method) and re.search(pattern, each.path)]

    def manifest_requests(self, method=""):
        return self.requests(method, "/manifests/")

    @property
    def url(self):
        return f"{'https' if self._ssl else 'http'}://{self.host}"

    # -- serving -----------------------------------------------------------------------------------------------------

    async def __aenter__(self):
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._ssl)
        await site.start()
        self.host = f"127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exception):
        await self._runner.cleanup()

    async def _handle(self, request):
        path = request.path.removeprefix("/v2/").lstrip("/")
        body = request[BODY] = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, path, request.query_string, headers, body))
        self.concurrent += 1
        self.most_concurrent = max(self.most_concurrent, self.concurrent)
        try:
            if self.delay:
                await asyncio.sleep(self.delay)
            scripted = self._scripted(request.method, path)
            if scripted is not None:
                return await self._play(request, scripted)
            response = self._token(request, body) if path == "token" else self._registry(request, path)
            if request.method == "HEAD":
                response.body = b""
            return response
        finally:
            self.concurrent -= 1

    def _scripted(self, method, path):
        for script in self._scripts:
            if script.method in ("*", method) and script.pattern.search(path) and script.answers:
                return script.answers[0] if script.forever else script.answers.pop(0)
        return None

    async def _play(self, request, answer):
        if callable(answer):
            answer = answer(request)
        if answer.delay:
            await asyncio.sleep(answer.delay)
        if not answer.drop:
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        headers = {"Content-Length": str(len(answer.body) + 100), **answer.headers}
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        await response.write(answer.body)
        request.transport.close()
        return response

    def _registry(self, request, path):
        refused = self._refusal(request, path)
        if refused is not None:
            return refused
        if not path:
            return web.json_response({})  # the ping of other clients; ours never sends one
        match = re.fullmatch(r"(.+)/(manifests|blobs)/([^/]+)", path)
        if match is None or request.method not in ("GET", "HEAD"):
            return self._error(404, "UNSUPPORTED", "no such place")
        repository, kind, selector = match.groups()
        if kind == "blobs":
            body = self.blobs.get((repository, selector))
            if body is None:
                return self._error(404, "BLOB_UNKNOWN", "blob unknown")
            return web.Response(body=body, content_type="application/octet-stream", headers=self.headers)
        digest = selector if ":" in selector else self.tags.get((repository, selector))
        found = self.manifests.get((repository, digest))
        if found is None:
            return self._error(404, "MANIFEST_UNKNOWN", "manifest unknown")
        body, content_type = found
        user = self._who(request, repository) if self.auth else ""
        headers = {"Docker-Content-Digest": digest, "ETag": f'"{digest}"', **self.headers, **self.figures.get(user, {})}
        if request.headers.get("If-None-Match") == f'"{digest}"':
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, headers={"Content-Type": content_type, **headers})

    def _refusal(self, request, path):
        repository = re.sub(r"/(manifests|blobs|referrers)/.*", "", path)
        if self.auth is None or (self.auth == "basic" and repository in self.public):
            return None
        user = self._who(request, repository)
        if user is not None and self._may(user, repository):
            return None
        if user is not None and self.auth == "basic":
            return self._error(403, "DENIED", "requested access to the resource is denied")
        response = self._error(401, "UNAUTHORIZED", "authentication required")
        if self.auth == "basic":
            response.headers["WWW-Authenticate"] = 'Basic realm="registry"'
        else:
            realm = self.realm or f"{self.url}/token"
            response.headers["WWW-Authenticate"] = (
                f'Bearer realm="{realm}",service="registry",scope="repository:{repository}:pull"'
            )
        return response

    def _who(self, request, repository):
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic" and self.auth == "basic":
            user, _, password = base64.b64decode(value).decode().partition(":")
            return user if self.users.get(user) == password else None
        if scheme == "Bearer" and self.auth == "bearer":
            user, scope = self._tokens.get(value, (None, ""))
            return user if scope == f"repository:{repository}:pull" else None
        return None

    def _may(self, user, repository):
        if user == "":
            return repository in self.public
        return repository in self.public or user in self.readers.get(repository, self.users)

    def _token(self, request, body):
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        scope = request.query.get("scope", "")
        user = ""
        if request.method == "POST":
            form = dict(pair.split("=", 1) for pair in body.decode().split("&"))
            user = self.identity_tokens.get(form.get("refresh_token", ""))
            scope = form.get("scope", "").replace("%3A", ":").replace("%2F", "/").replace("%2C", ",")
        elif scheme == "Basic":
            user, _, password = base64.b64decode(value).decode().partition(":")
            if self.users.get(user) != password:
                user = None
        if user is None:
            return self._error(401, "UNAUTHORIZED", "incorrect username or password")
        token = f"token-{len(self._tokens)}-{user or 'anonymous'}"
        self._tokens[token] = (user, scope)
        return web.json_response({"token": token, "expires_in": self.token_life})

    def revoke_tokens(self):
        self._tokens.clear()

    def _error(self, status, code, message):
        body = encode({"errors": [{"code": code, "message": message}]})
        return web.Response(status=status, body=body, content_type="application/json", headers=self.headers)
