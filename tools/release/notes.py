"""``python -m tools.release.notes TAG``: the notes of the release that a tag names, from CHANGELOG.md.

``make changelog`` wrote that section in the commit that is released. A tag of another version, or an entry that is
still in ``changelog.d``, is refused: then the tag is on the wrong commit. The page of a release has no folder, so links
to pages of the repository are made whole; they lead to these pages as they were released.
"""

import re
import sys
from pathlib import Path
from typing import Final

import polyarch

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = "https://github.com/polyarch/polyarch/blob"
WITHIN: Final = re.compile(r"\]\((?![a-z]+:)")
"""The beginning of a link to a page of the repository."""


class WrongCommitError(Exception):
    """The tag does not belong on this commit; the message says why and what to do."""


def notes(tag: str, version: str, changelog: str) -> str:
    """The section of ``version`` without its title, its links whole."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise WrongCommitError(
            f"version {version} is not three numbers, as charts and krew need them: change pyproject.toml"
        )
    if tag != f"v{version}":
        raise WrongCommitError(f"the tag is {tag} and this commit's version is {version}: tag it v{version}")
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    section = next((each for each in sections if re.match(rf"{re.escape(version)}[ \n]", each)), None)
    if section is None:
        raise WrongCommitError(f"CHANGELOG.md has no section {version}: run `make changelog`, commit and tag that")
    return WITHIN.sub(f"]({PAGES}/{tag}/", section.partition("\n")[2].strip()) + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tools.release.notes TAG", file=sys.stderr)
        return 2
    left = sorted(each.name for each in (ROOT / "changelog.d").rglob("*.*.md"))
    try:
        text = notes(arguments[0], polyarch.__version__, (ROOT / "CHANGELOG.md").read_text())
        if left:
            raise WrongCommitError(f"changelog.d still has {', '.join(left[:3])}: run `make changelog` and commit")
    except WrongCommitError as error:
        print(error, file=sys.stderr)
        return 1
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
