"""`init --from`: hosts of Ansible, devices of NetBox, nodes of Ironic, Metal3, Terraform become rows of a CSV file."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynetbox
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from reconciler.app.init import nodes_of, read_rows
from reconciler.app.inventory.fields import value_at
from reconciler.app.inventory.sources import READERS, parse_source, read_inventory
from reconciler.model.errors import ReconcilerError, UsageError
from reconciler.model.inventory import InventoryKind
from reconciler.render.draft.kinds import Row
from tests.cli.shell import reconciler
from tests.docs.pages import first_words
from tests.forge.server import serve

HOSTS = {"gpu-0001": ("https://10.0.0.1", "10.1.0.1", "r1"), "gpu-0002": ("https://10.0.0.2", "10.1.0.2", "r2")}


def nodes(where: Path, kind: str, document: Any, *fields: str) -> dict[str, Row]:
    file = where / "inventory.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return nodes_of(read_inventory(parse_source(f"{kind}:{file}", fields)), str(file))


def expected(where: Path) -> dict[str, Row]:
    lines = [f"{name},{bmc},{host},{rack}" for name, (bmc, host, rack) in HOSTS.items()]
    file = where / "nodes.csv"
    file.write_text("\n".join(["name,bmc,host,rack", *lines]))
    return read_rows(file)


# --- Ansible ------------------------------------------------------------------------------------------------------

INI = """
[gpu]
gpu-0001 ansible_host=10.1.0.1 idrac_ip=10.0.0.1 rack=r1
gpu-0002 ansible_host=10.1.0.2 idrac_ip=10.0.0.2 rack=r2

[all:vars]
ansible_user=root
"""


def listed(where: Path, text: str, limit: str = "all") -> str:
    """What ansible-inventory itself makes of an inventory."""
    file = where / "hosts.ini"
    file.write_text(text)
    program = Path(sys.executable).parent / "ansible-inventory"
    _, *words = first_words(
        "how-to/inventories", {"hosts.ini": str(file), "inventory.json": "/dev/stdout", "gpu": limit}
    )
    env = {"HOME": str(where), "PATH": f"{program.parent}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([program, *words], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_hosts_of_ansible_are_nodes(tmp_path: Path) -> None:
    assert nodes(tmp_path, "ansible", listed(tmp_path, INI + "\n[login]\nlogin-1\n", "gpu")) == expected(tmp_path)


def test_ansible_hosts_as_they_are_written(tmp_path: Path) -> None:
    """A port of SSH, a name that DNS knows, a variable of their own, and a host without variables."""
    text = listed(
        tmp_path, "a ansible_port=2222 my_bmc=bmc-a.example rack_id=7\nb my_bmc=2001:db8::1 ansible_host=::1\n"
    )
    found = nodes(tmp_path, "ansible", text, "bmc=my_bmc", "domains.row=rack_id")
    assert [(row.name, row.bmc, row.host, row.domains) for row in found.values()] == [
        ("a", "https://bmc-a.example", "a:2222", {"row": "7"}), ("b", "https://[2001:db8::1]", "[::1]", {}),
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"inventory.json: host web: bmc is missing"):
        nodes(tmp_path, "ansible", listed(tmp_path, "[x]\nweb\n"))


# --- NetBox -------------------------------------------------------------------------------------------------------


def device(number: int, name: str | None, bmc: str, host: str, rack: str, **more: Any) -> dict[str, Any]:
    """A device as NetBox 4 answers, as far as it says where a node is."""
    return {
        "id": number, "url": f"http://netbox/api/dcim/devices/{number}/", "display": name, "name": name, "serial": "S",
        "role": {"id": 1, "name": "GPU node", "slug": "gpu"}, "site": {"id": 1, "name": "A", "slug": "a"},
        "rack": {"id": 9, "name": rack, "display": rack}, "status": {"value": "active", "label": "Active"},
        "primary_ip": {"id": 5, "family": {"value": 4, "label": "IPv4"}, "address": f"{host}/24"},
        "oob_ip": {"id": 6, "family": {"value": 4, "label": "IPv4"}, "address": f"{bmc}/24"} if bmc else None,
        "custom_fields": {"hall": "H2"}, **more,
    }  # fmt: skip


DEVICES = [
    device(at, name.upper(), bmc.removeprefix("https://"), host, rack)
    for at, (name, (bmc, host, rack)) in enumerate(HOSTS.items(), 1)
]


@dataclass
class FakeNetBox:
    """Devices by pages of one, for one token. https://netboxlabs.com/docs/netbox/integrations/rest-api/"""

    devices: list[dict[str, Any]]
    tokens: set[str] = field(default_factory=lambda: {"Token 0123abcd", "Bearer nbt_0123.abcd"})
    url: str = ""
    elsewhere: str = ""
    knows_ids: bool = True  # False: parameters that it does not know are ignored
    asked: list[str] = field(default_factory=list)
    changes: list[Callable[[], object]] = field(default_factory=list)  # one after each page

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.get("/api/dcim/devices/", self._devices), web.get("/api/", self._root)])
        return app

    async def _root(self, _request: web.Request) -> web.Response:
        return web.json_response({"dcim": f"{self.url}/api/dcim/"}, headers={"API-Version": "4.5"})

    async def _devices(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        if request.headers.get("Authorization") not in self.tokens:
            return web.json_response({"detail": "Invalid token"}, status=403)
        role, at = request.query.get("role"), int(request.query.get("offset", "0"))
        found = [one for one in self.devices if role in (None, one["role"]["slug"])]
        if request.query.get("ordering") == "id":
            found.sort(key=lambda one: one["id"])
        if self.knows_ids:
            found = [one for one in found if one["id"] > int(request.query.get("id__gt", "0"))]
        more = at + 1 < len(found)
        base = self.elsewhere or str(request.url.origin())
        following = f"{base}{request.url.update_query(limit='1', offset=str(at + 1)).relative()}" if more else None
        if self.changes:
            self.changes.pop(0)()
        return web.json_response(
            {"count": len(found), "next": following, "previous": None, "results": found[at : at + 1]}
        )


@pytest.fixture
def netbox() -> Iterator[FakeNetBox]:
    other = device(3, "switch", "10.0.0.9", "10.1.0.9", "r9", role={"slug": "switch"})
    with serve(FakeNetBox([*DEVICES, other]), "") as found:
        yield found


@pytest.mark.wire
@pytest.mark.parametrize(
    ("token", "elsewhere"), [("0123abcd", ""), ("nbt_0123.abcd", ""), ("0123abcd", "http://netbox.internal:8080")]
)
def test_devices_of_netbox_are_nodes(
    netbox: FakeNetBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, elsewhere: str
) -> None:
    """Behind a proxy it names its next page by another address, and is asked at the user's all the same."""
    netbox.elsewhere = elsewhere
    monkeypatch.setenv("NETBOX_TOKEN", token)
    source = parse_source(f"netbox:{netbox.url}/api/dcim/devices/?role=gpu", ())
    assert nodes_of(read_inventory(source), "NetBox") == expected(tmp_path)
    assert len(netbox.asked) == 2
    assert all("role=gpu" in one and "limit=1000" in one for one in netbox.asked), "not by pages of 50"


@pytest.mark.wire
@pytest.mark.parametrize("also", ["nothing else", "another comes", "in another order"])
def test_a_device_that_leaves_between_two_pages_hides_no_other(
    netbox: FakeNetBox, monkeypatch: pytest.MonkeyPatch, also: str
) -> None:
    """With pages by offset the second began one device too late, and a count of the last page was of no help."""
    monkeypatch.setenv("NETBOX_TOKEN", "0123abcd")
    netbox.devices = [device(n, f"n{n}", f"10.0.0.{n}", f"10.1.0.{n}", "r1") for n in range(1, 6)]
    if also == "in another order":
        netbox.devices.reverse()
    netbox.changes = [lambda: netbox.devices.remove(next(one for one in netbox.devices if one["id"] == 1))]
    if also == "another comes":
        netbox.changes.append(lambda: netbox.devices.append(device(9, "n9", "10.0.0.9", "10.1.0.9", "r1")))
    found = read_inventory(parse_source(f"netbox:{netbox.url}/api/dcim/devices/?limit=1&offset=3&ordering=name", ()))
    names = [row.cells["name"] for row in found]
    assert names == ["n1", "n2", "n3", "n4", "n5", *(["n9"] if also == "another comes" else [])]
    assert all("limit=1&" in one and "limit=1000" not in one for one in netbox.asked)
    netbox.knows_ids = False
    with pytest.raises(ReconcilerError, match="are not in the order of ids"):
        read_inventory(parse_source(f"netbox:{netbox.url}/api/dcim/devices/", ()))


def test_devices_of_a_file_are_nodes_too(tmp_path: Path) -> None:
    assert nodes(tmp_path, "netbox", {"count": 2, "results": DEVICES}) == expected(tmp_path)
    found = nodes(tmp_path, "netbox", DEVICES, "pool=role.slug", "domains.hall=custom_fields.hall")
    assert [(row.pool, row.domains["hall"]) for row in found.values()] == [("gpu", "H2")] * 2


@pytest.mark.wire
def test_pynetbox_understands_the_server_of_these_tests(netbox: FakeNetBox) -> None:
    """A client that we did not write: else the reader would be tried against answers that no NetBox gives."""
    client = pynetbox.api(netbox.url, token="0123abcd")
    found = list(client.dcim.devices.filter(role="gpu"))
    assert [(one.name, one.oob_ip.address, one.primary_ip.address, one.rack.name) for one in found] == [
        ("GPU-0001", "10.0.0.1/24", "10.1.0.1/24", "r1"), ("GPU-0002", "10.0.0.2/24", "10.1.0.2/24", "r2"),
    ]  # fmt: skip


@pytest.mark.wire
def test_what_netbox_refuses_is_told(netbox: FakeNetBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("init", "--from", f"netbox:{netbox.url}/api/dcim/devices/", "--no-cluster")
    monkeypatch.delenv("NETBOX_TOKEN", raising=False)
    done = reconciler(*words)
    assert (done.code, "set NETBOX_TOKEN" in done.err) == (64, True)
    monkeypatch.setenv("NETBOX_TOKEN", "wrong")
    done = reconciler(*words)
    assert (done.code, "HTTP 403" in done.err, "wrong" in done.err.replace("is wrong", "")) == (1, True, False)
    monkeypatch.setenv("NETBOX_TOKEN", "0123abcd")
    for url, said in (
        (f"{netbox.url}/api/", "give the query of"),
        ("https://[::1/api/dcim/devices/", "is no address"),
        ("http://netbox.example/api/dcim/devices/", "https://"),
    ):
        assert said in reconciler("init", "--from", f"netbox:{url}", "--no-cluster").err


# --- Ironic -------------------------------------------------------------------------------------------------------


def ironic(name: str | None, uuid: str = "6d85703a", **info: Any) -> dict[str, Any]:
    """A node as `GET /v1/nodes/detail` answers (api-ref of Ironic), as far as it is read."""
    return {"uuid": uuid, "name": name, "driver": "redfish", "driver_info": info, "extra": {}, "properties": {},
            "provision_state": "active", "resource_class": "gpu", "maintenance": False}  # fmt: skip


def test_nodes_of_ironic_are_nodes(tmp_path: Path) -> None:
    found = []
    for name, (bmc, host, rack) in HOSTS.items():
        node = ironic(name, redfish_address=bmc, redfish_username="admin", redfish_password="******")
        found.append(node | {"extra": {"host": host, "rack": rack}})
    assert nodes(tmp_path, "ironic", {"nodes": found}) == expected(tmp_path)
    titles = [{key.replace("_", " ").title(): value for key, value in one.items()} for one in found]
    assert nodes(tmp_path, "ironic", titles) == expected(tmp_path), "as the command line heads its columns"
    [bare] = nodes(tmp_path, "ironic", [ironic("n1", redfish_address="bmc1:8443")]).values()
    assert (bare.bmc, bare.host) == ("https://bmc1:8443", "n1")


# --- Metal3 -------------------------------------------------------------------------------------------------------

MANIFESTS = """\
apiVersion: v1
kind: Secret
metadata: {name: bml-01-bmc}
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata:
  name: bml-01
  labels: {topology.kubernetes.io/rack: r1}
spec:
  online: true
  bootMACAddress: 80:c1:6e:7a:e8:10
  bmc: {address: "ADDRESS", credentialsName: bml-01-bmc}
"""


@pytest.mark.parametrize(
    ("address", "bmc"),
    [
        ("redfish://192.168.1.13/redfish/v1/Systems/1", "https://192.168.1.13"),
        ("redfish-virtualmedia://[2001:db8::5]:8443/redfish/v1/Systems/1", "https://[2001:db8::5]:8443"),
        ("redfish-virtualmedia+https://bmc.example/redfish/v1/Systems/1", "https://bmc.example"),
        ("idrac-redfish://10.0.0.1/redfish/v1/Systems/System.Embedded.1", "https://10.0.0.1"),
        ("idrac-virtualmedia+https://10.0.0.1/redfish/v1/Systems/System.Embedded.1", "https://10.0.0.1"),
        ("ilo5-redfish://10.0.0.1/redfish/v1/Systems/1", "https://10.0.0.1"),
        ("redfish-uefihttp://10.0.0.1/redfish/v1/Systems/1", "https://10.0.0.1"),
    ],
)
def test_hosts_of_metal3_are_nodes(tmp_path: Path, address: str, bmc: str) -> None:
    text = MANIFESTS.replace("ADDRESS", address)
    found = nodes(tmp_path, "metal3", text, "rack=metadata.labels.topology.kubernetes.io/rack")
    assert [(row.name, row.bmc, row.host, row.domains) for row in found.values()] == [
        ("bml-01", bmc, "bml-01", {"rack": "r1"})
    ]


def test_what_kubectl_lists_is_read(tmp_path: Path) -> None:
    items = []
    for name, (bmc, host, rack) in HOSTS.items():
        spec = {"online": True, "bmc": {"address": f"redfish://{bmc[8:]}/redfish/v1/Systems/1"}}
        meta = {"name": name, "namespace": "metal3", "labels": {"rack": rack}}
        status = {"hardware": {"hostname": host}, "operationalStatus": "OK"}
        items.append({"kind": "BareMetalHost", "metadata": meta, "spec": spec, "status": status})
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    assert nodes(tmp_path, "metal3", document, "rack=metadata.labels.rack") == expected(tmp_path)


# --- Terraform ----------------------------------------------------------------------------------------------------


def test_resources_of_a_terraform_state_are_nodes(tmp_path: Path) -> None:
    """In the form of https://developer.hashicorp.com/terraform/internals/json-format, in modules however deep."""
    made: list[dict[str, Any]] = []
    for at, (name, (bmc, host, rack)) in enumerate(HOSTS.items()):
        values = {"name": name, "access_ip": host, "rack": rack, "driver_info": {"redfish_address": bmc}, "id": "x"}
        made.append({"address": f"ironic_node_v1.gpu[{at}]", "mode": "managed", "type": "ironic_node_v1", "name": "gpu",
                     "index": at, "provider_name": "p", "schema_version": 0, "values": values})  # fmt: skip
    other = {"address": "aws_vpc.a", "mode": "managed", "type": "aws_vpc", "name": "a", "values": {"id": "v"}}
    data = {**made[0], "mode": "data", "address": "data.ironic_node_v1.gpu"}
    below = {"address": "module.a.module.b", "resources": made[1:]}
    root = {"resources": [other, data, made[0]], "child_modules": [{"address": "module.a", "child_modules": [below]}]}
    document = {"format_version": "1.0", "terraform_version": "1.9.0", "values": {"outputs": {}, "root_module": root}}
    fields = ("bmc=driver_info.redfish_address", "host=access_ip")
    assert nodes(tmp_path, "terraform", document, *fields) == expected(tmp_path)
    with pytest.raises(UsageError, match="name the value that has a BMC's address, with --field bmc=PATH"):
        nodes(tmp_path, "terraform", document)
    made[1]["values"] |= {"name": "Gpu 2"}
    with pytest.raises(UsageError, match=r"inventory.json: ironic_node_v1.gpu\[1\]: "):
        nodes(tmp_path, "terraform", document, *fields)
    with pytest.raises(UsageError, match=r"values.root_module is missing"):
        nodes(tmp_path, "terraform", {"version": 4, "resources": []}, *fields)
    with pytest.raises(UsageError, match="names no node"):
        nodes(tmp_path, "terraform", document, "bmc=nothing")


# --- what makes no sense ------------------------------------------------------------------------------------------

BMH = {"kind": "BareMetalHost", "metadata": {"namespace": "m", "name": "n"}, "spec": {}}


@pytest.mark.parametrize(
    ("kind", "document", "said"),
    [
        ("ansible", {"all": {}}, "inventory.json: _meta.hostvars is missing; write the file with `ansible-inventory"),
        ("ansible", '{\n "a": 1,\n}', "inventory.json:3:1: "),
        ("ansible", {"_meta": {"hostvars": {}}}, "names no node"),
        ("ansible", {"_meta": {"hostvars": {"a": {"bmc": ["x"]}}}}, "host a: bmc is no text"),
        ("ansible", {"_meta": {"hostvars": {"a": {"bmc": "http://x"}}}}, "host a: 'http://x' is not the URL of a BMC"),
        ("ansible", {"_meta": {"hostvars": {"a": {"bmc": "{{ x }}"}}}}, "host a: "),
        ("netbox", {"detail": "Invalid token"}, "a list of devices, as /api/dcim/devices/ answers is expected"),
        ("netbox", [device(4, "n", "", "10.1.0.1", "r")], "device n: bmc is missing"),
        ("netbox", [device(4, None, "10.0.0.1", "10.1.0.1", "r")], "device 4: name is missing"),
        ("netbox", [*DEVICES, DEVICES[0]], "device GPU-0001: node 'gpu-0001' is listed twice"),
        ("netbox", [device(4, "my node", "10.0.0.1", "10.1.0.1", "r")], "device my node: "),
        ("netbox", {"next": "https://n/?offset=50", "results": DEVICES}, "it is one page, and others follow"),
        ("ironic", {"next": "https://i/v1/nodes?marker=x", "nodes": [ironic("n")]}, "it is one page, and others"),
        ("metal3", {"kind": "List", "metadata": {"continue": "x"}, "items": [BMH]}, "it is one page, and others"),
        ("ironic", {"nodes": [ironic(None, redfish_address="https://x")]}, "node 6d85703a: name, host is missing"),
        (
            "ironic",
            [ironic("n", ipmi_address="10.0.0.1")],
            "node n: driver_info has ipmi_address and no redfish_address",
        ),
        ("ironic", [ironic("n", redfish_address="http://x")], "node n: 'http://x' is not the URL of a BMC"),
        (
            "metal3",
            MANIFESTS.replace("ADDRESS", "ipmi://10.0.0.1:623"),
            ":5: BareMetalHost bml-01: ipmi://10.0.0.1:623",
        ),
        ("metal3", MANIFESTS.replace("ADDRESS", "ipmi://root:pw@10.0.0.1"), "the address of its BMC has a user or"),
        ("metal3", MANIFESTS.replace("ADDRESS", "redfish+http://10.0.0.1/x"), "is without TLS"),
        ("metal3", {"kind": "List", "items": [BMH]}, "BareMetalHost m/n: bmc is missing"),
        ("metal3", "a: [", "inventory.json:1"),
    ],
)
def test_a_problem_is_told_with_its_line_or_its_object(tmp_path: Path, kind: str, document: Any, said: str) -> None:
    with pytest.raises(UsageError) as told:
        nodes(tmp_path, kind, document)
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "nebox:x"], "did you mean"),
        (["--from", "ansible"], "KIND:FILE is expected"),
        (["--from", "ansible:none.json"], "none.json: No such file"),
        (["--from", "ansible:x", "--field", "bmc"], "COLUMN=PATH is expected"),
        (["--from", "ansible:x", "--field", "bcm=x"], "unknown column 'bcm'; did you mean"),
        (["--from", "ansible:x", "--field", "domains.Row=x"], "unknown column"),
        (["--from", "ansible:x", "--field", "bmc=x", "--field", "bmc=y"], "once for each column"),
        (["--from", "ansible:x", "--name", "n"], "--from excludes"),
        (["--field", "bmc=x"], "--field is for --from"),
    ],
)
def test_a_wrong_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = reconciler("init", *words, "--no-cluster")
    assert (done.code, said in done.err) == (64, True), done.err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["_meta", "hostvars", "hosts", "results", "nodes", "items", "kind", "metadata", "name", "spec",
                         "bmc", "address", "oob_ip", "values", "root_module", "resources", "mode", "driver_info",
                         "extra", "a", "b"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.sampled_from(sorted(READERS)), JSON)
def test_whatever_an_inventory_holds_it_is_nodes_or_a_problem_that_is_told(kind: InventoryKind, document: Any) -> None:
    with contextlib.suppress(ReconcilerError):
        nodes_of(READERS[kind](document, "x", {"bmc": "bmc"} if kind == "terraform" else {}), "x")


def test_a_path_may_go_through_keys_with_dots() -> None:
    thing = {"a": {"b.c/d": {"e": 1}, "b": {"c": 2}}, "a.b": {"z": 3}}
    assert [value_at(thing, path) for path in ("a.b.c/d.e", "a.b.c", "a.b.z", "a.x", "q", "a.b.c.d")] == [
        1, 2, 3, None, None, None,
    ]  # fmt: skip


# --- MAAS ---------------------------------------------------------------------------------------------------------


def machine(name: str, bmc: str, host: str, **changes: Any) -> dict[str, Any]:
    """A machine as `maas PROFILE machines read` has it, with the address that the guide's jq adds."""
    found: dict[str, Any] = {
        "system_id": f"id{name[-1]}", "hostname": name, "fqdn": f"{name}.maas", "status_name": "Deployed",
        "power_type": "redfish", "ip_addresses": [host, "fe80::1"], "pool": {"id": 0, "name": "gpu"},
        "zone": {"id": 1, "name": "default"}, "tag_names": [], "power_address": bmc.removeprefix("https://"),
    }  # fmt: skip
    return found | changes


def test_machines_of_maas_are_nodes(tmp_path: Path) -> None:
    listed = [machine(name, bmc, host, rack=rack) for name, (bmc, host, rack) in HOSTS.items()]
    found = nodes(tmp_path, "maas", listed, "rack=rack")
    plain = nodes(tmp_path, "maas", [machine("gpu-0001", "10.0.0.1", "10.1.0.1", ip_addresses=[])])
    assert {name: (row.bmc, row.host, row.domains) for name, row in found.items()} == {
        name: (row.bmc, row.host, row.domains) for name, row in expected(tmp_path).items()
    }
    assert {row.pool for row in found.values()} == {"gpu"}
    assert plain["gpu-0001"].host == "gpu-0001.maas"


def test_a_machine_of_maas_without_redfish_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="machine gpu-0001: power_type is 'ipmi'"):
        nodes(tmp_path, "maas", [machine("gpu-0001", "10.0.0.1", "10.1.0.1", power_type="ipmi")])
    found = nodes(
        tmp_path, "maas", [machine("gpu-0001", "x", "10.1.0.1", power_type="ipmi", web="10.0.0.9")], "bmc=web"
    )
    assert found["gpu-0001"].bmc == "https://10.0.0.9"
