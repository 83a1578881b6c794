"""The object that operator-sdk decodes."""

import json

import pytest
from bundling import MANAGER, TWO, csv, judged, labels

from polyarch.manifests import operator_sdk

MEMBERS = {"Type", "Level", "Field", "BadValue", "Detail"}


@pytest.mark.req("MF-079")
def test_MF_079_exactly_the_members_of_a_result() -> None:
    findings = [each.finding for each in judged(csv(labels=labels("amd64", "s390x")), {MANAGER: TWO})]
    assert {each.severity.value for each in findings} == {"error", "warning", "info"}
    document = json.loads(operator_sdk.result("acme.v1", operator_sdk.native_entries(findings, "acme.v1")))
    assert set(document) == {"Name", "Errors", "Warnings"}
    assert document["Name"] == "acme.v1"
    assert all(set(each) == MEMBERS for each in (*document["Errors"], *document["Warnings"]))
    assert {each["Level"] for each in document["Errors"]} == {"Error"}
    assert {each["Level"] for each in document["Warnings"]} == {"Warning"}
    (error,) = [each for each in document["Errors"] if each["Detail"].startswith("MA201: ")]
    assert error["Type"] == "ValidationFailed"
    assert error["Field"] == "/metadata/labels/operatorframework.io~1arch.s390x"
    assert error["BadValue"] == "acme.v1"
    assert "MA207" not in json.dumps(document), "info is left out"


@pytest.mark.req("MF-079")
def test_MF_079_lists_are_never_null() -> None:
    assert json.loads(operator_sdk.result("acme.v1", [])) == {"Name": "acme.v1", "Errors": [], "Warnings": []}


@pytest.mark.req("MF-079")
def test_MF_079_what_is_no_bundle() -> None:
    (error,) = json.loads(operator_sdk.result("acme", [operator_sdk.invalid("two CSVs", "acme")]))["Errors"]
    assert error == {"Type": "BundleNotValid", "Level": "Error", "Field": "", "BadValue": "acme", "Detail": "two CSVs"}


@pytest.mark.req("MF-079")
def test_MF_079_compat_mode_has_the_same_form() -> None:
    outputs = [operator_sdk.Output("warning", "w"), operator_sdk.Output("error", "e", "BundleNotValid")]
    document = json.loads(operator_sdk.result("acme.v1", operator_sdk.compat_entries(outputs, "acme.v1")))
    assert [each["Detail"] for each in document["Warnings"]] == ["w"]
    assert document["Errors"][0]["Type"] == "BundleNotValid"
