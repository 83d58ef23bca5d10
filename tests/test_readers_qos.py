"""What the kernel's own dcb tells of a port: which priorities it pauses, by what it knows them."""

from __future__ import annotations

import json

import pytest

from gates.readers import qos
from tests.reader_samples import Reader, refused, refuses_what_did_not_run, said, survives

PFC = {"pfc_cap": 8, "macsec_bypass": False, "delay": 0, "prio_pfc": [False, False, False, True, *[False] * 4]}


def test_dcb_pfc() -> None:
    assert qos.dcb_pfc(said(json.dumps(PFC))).index(True) == 3
    for told in ([], [False] * 7, [0] * 8, ["on"] * 8, None):
        refused(qos.dcb_pfc, said(json.dumps({**PFC, "prio_pfc": told})))
    refused(qos.dcb_pfc, said(json.dumps(PFC), status=1, stderr="Attribute read: Operation not supported"))


def test_dcb_trust() -> None:
    assert qos.dcb_trust(said('{"order": ["dscp ", "pcp "]}')) == ("dscp", "pcp")
    assert qos.dcb_trust(said('{"order": []}')) == ()
    refused(qos.dcb_trust, said('{"order": [1]}'))


@pytest.mark.parametrize(("reader", "text"), [(qos.dcb_pfc, json.dumps(PFC)), (qos.dcb_trust, '{"order": ["pcp"]}')])
def test_nothing_else(reader: Reader, text: str) -> None:
    refuses_what_did_not_run(reader)
    survives(reader, said(text))
