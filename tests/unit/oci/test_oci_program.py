"""The program that an image starts, found through its layers."""

import json

import pytest
from image_parts import FOLDER, elf, hard_link, link, tar

from polyarch.oci.documents import ContentError
from polyarch.oci.image import entrypoint
from polyarch.oci.image.entrypoint import Entrypoint, ProgramNotFound, ProgramSearch, read_start_command
from polyarch.oci.image.layers import ArchiveReader, Member

APP = elf("arm64")
OTHER = elf("amd64")


def start(*command, path="/usr/bin:/bin", folder="/", **config):
    settings = {"Entrypoint": list(command), "Env": [f"PATH={path}"], "WorkingDir": folder, **config}
    return read_start_command(json.dumps({"config": settings}).encode()).programs[0]


def find(wanted, *layers):
    """The program in layers given from the top down, and how many of them were read for it."""
    search = ProgramSearch(wanted)
    for number, members in enumerate(layers, start=1):
        search.begin_layer()
        for member in ArchiveReader().feed(tar(members)):
            found = search.add(member)
            if found is not None:
                return found, number
        found = search.look(last=number == len(layers))
        if found is not None:
            return found, number
    raise AssertionError("the search has no end")


def path_of(wanted, *layers):
    return find(wanted, *layers)[0].path


class TestStart:
    @pytest.mark.req("RG-049")
    def test_the_entry_point_comes_before_the_command(self):
        """The first element of Entrypoint, else of Cmd."""
        assert read_start_command(b'{"config":{"Entrypoint":["/a","b"],"Cmd":["/c"]}}').programs[0].command == "/a"
        assert read_start_command(b'{"config":{"Entrypoint":null,"Cmd":["/c"]}}').programs[0].command == "/c"
        assert read_start_command(b'{"config":{"Entrypoint":[],"Cmd":["/c"]}}').programs[0].command == "/c"

    @pytest.mark.parametrize("config", [b"{}", b'{"config":null}', b'{"config":{}}', b'{"config":{"Cmd":[""]}}'])
    def test_an_image_may_start_nothing(self, config):
        with pytest.raises(ProgramNotFound, match="names no program"):
            read_start_command(config)

    @pytest.mark.req("RG-049")
    @pytest.mark.parametrize(
        ("words", "programs"),
        [
            (["/app"], ["/app"]),
            (["sh", "-c", "/srv/app"], ["sh", "/srv/app"]),
            (["/bin/bash", "-lc", "cd /srv && exec ./app --port 80"], ["/bin/bash", "./app"]),
            (["/bin/sh", "-c", "A=b /migrate; export C=d; /serve | tee log"], ["/bin/sh", "/migrate", "/serve", "tee"]),
            (["sh", "-c", 'exec "$@"', "--"], ["sh"]),
            (["sh", "-c", 'exec "$@"', "--", "/srv/app", "-v"], ["sh", "/srv/app"]),
            (["sh", "-c", "it is 'open"], ["sh"]),
            (["sh", "/start.sh"], ["sh"]),
            (["/sbin/tini", "--", "/srv/app", "-v"], ["/sbin/tini", "/srv/app"]),
            (["tini", "-e", "143", "app"], ["tini", "app"]),
            (["dumb-init", "gosu", "nobody", "/srv/app"], ["dumb-init", "gosu", "/srv/app"]),
            (["env", "A=b", "C=d", "/srv/app"], ["env", "/srv/app"]),
            (["timeout", "-s", "KILL", "10s", "/srv/app"], ["timeout", "/srv/app"]),
            (["tini", "--", "sh", "-c", "exec /srv/app"], ["tini", "sh", "/srv/app"]),
            (["tini", "--"], ["tini"]),
            (["tini"] * 99, ["tini"]),
        ],
    )
    def test_what_a_wrapper_starts_is_looked_at_too(self, words, programs):
        """Inits, changes of user and shells, as far as the words say it."""
        config = {"config": {"Entrypoint": words[:1], "Cmd": words[1:]}}
        found = read_start_command(json.dumps(config).encode()).programs
        assert [each.command for each in found] == programs

    def test_a_text_too_long_to_be_split_is_not_read(self):
        config = {"config": {"Entrypoint": ["sh", "-c", "true;" * 20_000 + "exec /app"]}}
        found = read_start_command(json.dumps(config).encode()).programs
        assert [each.command for each in found] == ["sh"]

    def test_a_word_without_a_slash_is_looked_for_in_the_path(self):
        assert start("nginx", path="/usr/sbin::/opt").paths == ("usr/sbin/nginx", "opt/nginx")
        assert Entrypoint("sh", tuple(entrypoint.DEFAULT_PATH.split(":")), "/").paths[-1] == "bin/sh"
        assert read_start_command(b'{"config":{"Cmd":["sh"]}}').programs[0].paths[0] == "usr/local/sbin/sh"

    def test_a_relative_word_is_below_the_working_folder(self):
        assert start("./run", folder="/srv/app").paths == ("srv/app/run",)
        assert start("bin/run", folder="srv").paths == ("srv/bin/run",)
        assert start("../run", folder="/").paths == ("run",)

    def test_the_last_path_of_the_environment_counts(self):
        config = {"config": {"Cmd": ["x"], "Env": ["A=b", "PATH=/one", "PATH=/two"]}}
        assert read_start_command(json.dumps(config).encode()).programs[0].paths == ("two/x",)

    @pytest.mark.parametrize("config", [b"[]", b'{"config":{"Cmd":"sh"}}', b'{"config":{"Cmd":[1]}}', b"x"])
    def test_a_config_of_another_shape_is_malformed(self, config):
        with pytest.raises(ContentError, match="malformed"):
            read_start_command(config)


class TestSearch:
    @pytest.mark.req("RG-049")
    def test_the_top_layer_has_the_first_say(self):
        """From the top layer down, and no further than needed."""
        found, layers = find(start("/app"), {"app": APP}, {"app": OTHER})
        assert (found.path, found.head, layers) == ("/app", APP[:256], 1)

    def test_lower_layers_are_read_if_need_be(self):
        assert find(start("/app"), {"etc/x": b"1"}, {"y": b"2"}, {"app": APP})[1] == 3

    def test_the_path_is_searched_in_its_order(self):
        assert path_of(start("app"), {"bin/app": OTHER, "usr/bin/app": APP}, {}) == "/usr/bin/app"

    def test_a_hit_in_an_upper_layer_is_not_searched_for_further_down(self):
        """Certainty that no lower layer has one in an earlier folder would take all layers of all images."""
        found, layers = find(start("app"), {"bin/app": APP}, {"usr/bin/app": OTHER})
        assert (found.path, layers) == ("/bin/app", 1)

    @pytest.mark.req("RG-049")
    def test_links_are_followed_to_what_they_name(self):
        """Symlinks, absolute, relative and upwards, into other layers; hard links within one."""
        layers = {"app": link("usr/bin/run")}, {"usr/bin/run": link("../lib/run")}, {"usr/lib/run": link("/opt/run")}
        assert path_of(start("/app"), *layers, {"opt/run": APP}) == "/opt/run"
        assert path_of(start("/sh"), {"bin/busybox": APP, "sh": hard_link("bin/busybox")}) == "/bin/busybox"

    def test_a_folder_on_the_way_may_be_a_link(self):
        """As /bin is on most systems, in another layer than the program."""
        layers = {"etc/x": b"1"}, {"usr/bin/sh": APP}, {"bin": link("usr/bin")}
        assert path_of(start("/bin/sh"), *layers) == "/usr/bin/sh"

    def test_a_file_below_a_name_that_is_a_link_further_down_is_found_under_that_name(self):
        assert path_of(start("/bin/app"), {"bin/app": APP}, {"bin": link("usr/bin")}) == "/bin/app"

    @pytest.mark.req("RG-049")
    def test_a_script_is_what_its_interpreter_is(self):
        """One `#!` line is followed, with or without blanks and words after it."""
        for line in (b"#!/bin/sh\n", b"#! /bin/sh -e\necho", b"#!/bin/sh"):
            assert path_of(start("/run.sh"), {"run.sh": line}, {"bin": link("usr/bin"), "usr/bin/sh": APP}) == (
                "/usr/bin/sh"
            )

    @pytest.mark.parametrize("line", [b"#!\n", b"#!sh\n", b"#!\0\n"])
    def test_a_script_without_a_usable_interpreter_is_left_unchecked(self, line):
        with pytest.raises(ProgramNotFound, match="script without a usable"):
            find(start("/run"), {"run": line})

    def test_a_script_for_a_script_is_left_unchecked(self):
        with pytest.raises(ProgramNotFound, match="script"):
            find(start("/run"), {"run": b"#!/other\n", "other": b"#!/bin/sh\n", "bin/sh": APP})

    def test_a_removed_file_is_not_there_whatever_is_below(self):
        """Whiteouts of the image specification: a file, a folder above it, and all that was in a folder."""
        for removal in ("usr/bin/.wh.app", "usr/.wh.bin", ".wh.usr", "usr/bin/.wh..wh..opq"):
            with pytest.raises(ProgramNotFound, match="in none of its layers"):
                find(start("/usr/bin/app"), {removal: b""}, {"usr/bin/app": OTHER})

    def test_a_removal_hides_what_is_below_it_only(self):
        assert path_of(start("/app"), {"app": APP}, {".wh.app": b""}, {"app": OTHER}) == "/app"
        assert path_of(start("/a/app"), {"a/.wh..wh..opq": b"", "a/app": APP}, {"a/app": OTHER}) == "/a/app"

    @pytest.mark.req("RG-049")
    def test_eight_links_are_followed_and_no_more(self):
        """≤ 8 steps; a circle ends there too."""
        chain = {f"l{number}": link(f"/l{number + 1}") for number in range(8)}
        assert path_of(start("/l0"), {**chain, "l8": APP}) == "/l8"
        with pytest.raises(ProgramNotFound, match="more than 8 links"):
            find(start("/l0"), {**chain, "l8": link("/l9"), "l9": APP})
        with pytest.raises(ProgramNotFound, match="more than 8 links"):
            find(start("/a"), {"a": link("b"), "b": link("a")})

    def test_what_is_in_no_layer_is_said_to_be_missing(self):
        with pytest.raises(ProgramNotFound, match="app is in none of its layers"):
            find(start("app"), {"usr/bin/apps": APP}, {})

    def test_a_folder_is_no_program(self):
        with pytest.raises(ProgramNotFound):
            find(start("/app"), {"app/": FOLDER})

    def test_a_layer_that_is_read_again_leaves_nothing_behind(self):
        search = ProgramSearch(start("/app"))
        search.begin_layer()
        search.add(Member("bin", "link", target="/nowhere"))
        search.restart_layer()
        assert search.look(last=False) is None
        assert search.add(Member("app", "file", executable=True, head=APP)).path == "/app"

    def test_an_image_of_endless_names_is_given_up(self, monkeypatch):
        monkeypatch.setattr(entrypoint, "MAX_NAMES", 10)
        with pytest.raises(ProgramNotFound, match="more than 10 programs and links"):
            find(start("/app"), {f"f{number}": b"x" for number in range(11)})
