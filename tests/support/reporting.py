"""Shared by the tests of reports and formats: a run over one text, as the command line makes it."""

from collections.abc import Mapping
from typing import Any

from linting import answers, scanned

from polyarch.manifests.report import ExaminedFile, FailOn, Incomplete, Report, image_answers
from polyarch.manifests.rules.engine import lint, wanted
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.rules.suppression import suppressed

IMAGES = {"quay.io/acme/web:2": ["linux/amd64", "linux/arm64"]}

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - key: kubernetes.io/arch
                operator: In
                values: [amd64, arm64, s390x]
      containers:
      - name: web
        image: quay.io/acme/web:2
"""
"""MA102 (error) at 16:40 and MA106 (info) at 14:17."""


def report(
    text: str = WEB,
    images: Mapping[str, Any] = IMAGES,
    *,
    path: str = "deploy/web.yaml",
    fail_on: FailOn = "warning",
    show_suppressed: bool = False,
    incomplete: tuple[Incomplete, ...] = (),
    **options: Any,
) -> Report:
    found = scanned(text, path)
    rules = LintOptions(**options)
    texts = wanted(found, rules)
    known = answers(images, texts)
    problems = suppressed(found, lint(found, known, rules))
    return Report.of(
        [problem.finding for problem in problems],
        files=[ExaminedFile(path, tuple(each.reference for each in found.objects), len(found.pod_specs))],
        images=image_answers(known.of(each) for each in texts),
        incomplete=incomplete,
        fail_on=fail_on,
        show_suppressed=show_suppressed,
    )
