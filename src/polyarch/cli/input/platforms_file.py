"""Reading a platforms file (RG-130): YAML or JSON, with the place of what is wrong in it.

A key that stands there twice is refused, although YAML readers take the last one silently: of two answers for an image
one would be lost (RG-132).
"""

from polyarch.cli.errors import UsageError
from polyarch.cli.input.yaml_files import StrictLoader, load_yaml
from polyarch.oci.platforms_file import AnswerFile, InvalidAnswers


def load_platforms_file(path: str) -> AnswerFile:
    """The answers of the file; ``UsageError`` with file, place and reason if it cannot be used."""
    data = load_yaml("--platforms-file", path, expected="a YAML or JSON file of answers", loader=StrictLoader)
    try:
        return AnswerFile.from_mapping(data, origin=path)
    except InvalidAnswers as error:
        raise UsageError(str(error)) from None
