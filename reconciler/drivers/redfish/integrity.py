"""ComponentIntegrity: the components that sign what they measured, and their answers (DSP0268; SPDM, DSP0274).

OpenBMC of NVIDIA and DGX (AMI) answer the action with a task, whose end names where the answer is in the header
Location of its payload: no response body has it. Others answer at once.
"""

from __future__ import annotations

from reconciler.drivers.redfish import tasks
from reconciler.drivers.redfish.fields import (
    Document,
    Unknown,
    boolean,
    last_segment,
    link,
    links,
    member,
    path,
    quote,
    text,
    texts,
)
from reconciler.drivers.redfish.tree import Tree, action
from reconciler.model.errors import DriverError, Failure
from reconciler.model.measurements import SignedMeasurements
from reconciler.model.observed import ComponentIntegrity

MEASURE = "#ComponentIntegrity.SPDMGetSignedMeasurements"
_SIGNED = "SignedMeasurements"
_LARGEST = 1 << 20  # characters of an answer, and of a certificate chain


def collection(tree: Tree) -> str:
    """Return the URI of the collection. Unknown where the BMC has none."""
    where = link(tree.session.root(), "ComponentIntegrity")
    if where is None:
        raise Unknown("the BMC has no ComponentIntegrity, and hands on no measurements of components")
    return where


def read_components(tree: Tree) -> tuple[ComponentIntegrity, ...]:
    """Return what the BMC lists; () where it has no ComponentIntegrity at all."""
    if link(tree.session.root(), "ComponentIntegrity") is None:
        return ()
    return tuple(_component(resource.path, resource.body) for resource in tree.members(collection(tree)))


def _component(uri: str, document: Document) -> ComponentIntegrity:
    return ComponentIntegrity(
        id=last_segment(uri),
        kind=text(document, "ComponentIntegrityType"),
        version=text(document, "ComponentIntegrityTypeVersion"),
        enabled=boolean(document, "ComponentIntegrityEnabled"),
        target=path(document.get("TargetComponentURI")),
        protects=links(member(document, "Links"), "ComponentsProtected"),
        measures=action(document, MEASURE) is not None,
    )


def ask(tree: Tree, component: str, nonce: bytes) -> SignedMeasurements | str:
    """Ask a component for its measurements under a nonce. Return its answer, or the URI of the task that gets it."""
    found = _find(tree, component)
    offered = action(found, MEASURE)
    if offered is None:
        raise Unknown(f"the BMC offers no signed measurements of {quote(component)}")
    # Without MeasurementIndices all are meant. SlotId 0 is the maker's chain, and the default.
    reply = tree.session.post(offered[0], {"Nonce": nonce.hex()})
    if text(reply.body, _SIGNED) is not None:
        return _answer(tree, found, reply.body)
    uri = tasks.task_of_reply(reply.body, reply.location)
    if uri is None:
        raise DriverError(Failure.MALFORMED, f"POST {offered[0]}: neither measurements nor a task")
    return uri


def result(tree: Tree, component: str, uri: str) -> SignedMeasurements | None:
    """Return the answer that a task got; None while it runs. BUSY where it ended without one: another may do better."""
    document = tree.get(uri).body
    if text(document, _SIGNED) is not None:  # a monitor answers with what the action answers, once it is done
        return _answer(tree, _find(tree, component), document)
    task = tasks.task(uri, document, tree.behaviours())
    if not task.done:
        return None
    if task.ok is False:
        said = "; ".join(task.messages) or "without a message"
        raise DriverError(Failure.BUSY, f"the task for measurements of {component} ended as {task.state}: {said}")
    where = _location(document)
    if where is None:
        raise DriverError(Failure.MALFORMED, f"{uri}: the task ended, and does not name its result")
    return _answer(tree, _find(tree, component), tree.get(where).body)


def _location(document: Document) -> str | None:
    """Return the last Location among the headers that a task kept, which is where its result is."""
    for header in reversed(texts(member(document, "Payload"), "HttpHeaders")):
        name, _, value = header.partition(":")
        if name.strip().casefold() == "location":
            return path(value.strip())
    return None


def _find(tree: Tree, component: str) -> Document:
    for uri, _ in tree.listed(collection(tree)):
        if last_segment(uri) == component:
            return tree.get(uri).body
    raise DriverError(Failure.REJECTED, f"the BMC lists no {quote(component)} in ComponentIntegrity")


def _answer(tree: Tree, found: Document, answer: Document) -> SignedMeasurements:
    """Join an answer with the certificate chain that it, or else the component, names."""
    signed = text(answer, _SIGNED)
    if signed is None:
        raise DriverError(Failure.MALFORMED, f"the BMC's answer has no {_SIGNED}")
    responder = member(member(member(found, "SPDM"), "IdentityAuthentication"), "ResponderAuthentication")
    where = link(answer, "Certificate") or link(responder, "ComponentCertificate")
    if where is None:
        raise Unknown("the BMC names no certificate of the component")
    chain = text(tree.get(where).body, "CertificateString")
    if chain is None:
        raise DriverError(Failure.MALFORMED, f"GET {where}: no CertificateString")
    if max(len(chain), len(signed)) > _LARGEST:
        raise DriverError(Failure.MALFORMED, f"the measurements or the certificates have more than {_LARGEST} bytes")
    return SignedMeasurements(signed, text(answer, "HashingAlgorithm") or "", chain)
