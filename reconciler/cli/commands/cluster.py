"""reconciler cluster"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import click

from reconciler.app import k3s_commands as use_case
from reconciler.app.apply import ApplyJob, require_signed_spec
from reconciler.app.apply import apply as apply_job
from reconciler.app.k3s_commands import Found, Restored, server_names
from reconciler.app.ports import AllowedSigners, FleetRequest
from reconciler.cli.apply_dialogue import print_outcome
from reconciler.cli.commands.apply import exit_code
from reconciler.cli.completion import node_names
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.options import Duration, output_option, signer_options, spec_options
from reconciler.cli.terminal import say
from reconciler.model.errors import UsageError
from reconciler.render.text import plain


@click.group(cls=Group)
def cluster() -> None:
    """Restore a K3s cluster from a snapshot of etcd, take a lost server out of it, or take it away."""


@cluster.command()
@click.argument("name", metavar="CLUSTER")
@click.option("--snapshot", required=True, metavar="NAME",
              help="As `k3s etcd-snapshot ls` names it, or the path of one on a server.")  # fmt: skip
@click.option("--server", default="", shell_complete=node_names, metavar="NODE",
              help="The server that has it, where several do.")  # fmt: skip
@click.option("--from-store", is_flag=True, help="It is in the object store of the spec (`k3s.snapshots.s3`).")
@click.option("--confirm", default="", metavar="TEXT", help="'restore CLUSTER': the consent, off a terminal.")
@click.option("--wait", "wait_s", type=Duration(), default="30m", show_default=True, metavar="DURATION",
              help="Time limit for the other servers to join again.")  # fmt: skip
@spec_options()
@signer_options
@output_option
def restore(
    request: FleetRequest, signers: AllowedSigners, name: str, snapshot: str, server: str, from_store: bool,
    confirm: str, wait_s: float, output: str,
) -> int:  # fmt: skip
    """Restore CLUSTER from a snapshot: all that was written since is lost.

    All servers stop; the one with the snapshot restores it, and the others put their datastore away and join it again.
    Meanwhile nothing else is done to the fleet. After an interruption, the same command goes on.
    """
    workspace = workspace_for(request)
    use_case.check_cluster(workspace, name)
    wanted = use_case.wanted_snapshot(workspace, snapshot, server, stored=from_store)
    with workspace.ledger() as ledger:
        require_signed_spec(workspace, ledger, signers)
        _ask(name, use_case.find_snapshot(workspace, wanted), confirm)
        done = use_case.restore_cluster(workspace, ledger, name, wanted)
    _tell(name, done)
    if done.stays_stopped:
        say("the fleet was stopped meanwhile: the other servers join after `reconciler resume`", err=True)
        return ExitCode.REFUSED
    joining = workspace_for(replace(request, limit=server_names(workspace.fleet)))
    with joining.ledger() as ledger:
        job = ApplyJob(None, wait_s, redact=False, command="cluster restore")
        result = apply_job(joining, ledger, job, partial(exit_code, detailed=False))
    print_outcome(result.outcome, output)
    return result.code


def _ask(name: str, found: Found, given: str) -> None:
    """Say what will be lost, and have the consent typed. Raise UsageError where there is no terminal and none given."""
    sentence = f"restore {name}"
    _check_consent(sentence, given)
    if found.progress is not None:
        say(plain(f"going on with the restore that was begun as {found.progress.id}", 400), err=True)
    digest = "which is read when K3s fetches it" if found.sha256 == use_case.NOT_READ else f"sha256 {found.sha256}"
    say(plain(f"{found.server} restores {found.path} ({digest})", 600), err=True)
    if found.others:
        say(plain(f"{', '.join(found.others)} put their datastore away and join it again", 600), err=True)
    if found.off:
        say(plain(f"{', '.join(found.off)}: off, and held afterwards", 600), err=True)
    say("What was written to the cluster since is lost; running containers go on", err=True)
    _consent(sentence, given)


def _check_consent(sentence: str, given: str) -> None:
    if given not in ("", sentence):
        raise UsageError(f"--confirm {given!r} is not {sentence!r}")


def _consent(sentence: str, given: str) -> None:
    """Have the sentence typed, unless it was given."""
    if given == sentence:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"off a terminal, this needs --confirm {sentence!r}")
    if click.prompt(f"Type '{sentence}' to go on", err=True) != sentence:
        raise click.Abort


@cluster.command()
@click.argument("name", metavar="CLUSTER")
@click.option("--confirm", default="", metavar="TEXT", help="'tear down CLUSTER': the consent, off a terminal.")
@spec_options()
@signer_options
def teardown(request: FleetRequest, signers: AllowedSigners, name: str, confirm: str) -> None:
    """Take CLUSTER away: every node gives up K3s with all its pods, volumes, images and snapshots.

    Agents go first, servers last. Meanwhile nothing else is done to the fleet. After an interruption, the same command
    goes on. What is on a partition of its own is kept, and named.
    """
    workspace = workspace_for(request)
    use_case.check_cluster(workspace, name)
    sentence = f"tear down {name}"
    _check_consent(sentence, confirm)
    agents, servers, _ = use_case.concerned(workspace.fleet)
    with workspace.ledger() as ledger:
        require_signed_spec(workspace, ledger, signers)
        say(plain(f"{len(agents)} agents and {len(servers)} servers give up K3s: pods end, and volumes, images, "
                  f"{use_case.lost_with(workspace.fleet)} are deleted", 600), err=True)  # fmt: skip
        _consent(sentence, confirm)
        done = use_case.tear_down_cluster(workspace, ledger, name)
    say(plain(f"{name} is gone from {len(done.nodes)} nodes; take it out of the spec", 600))
    for node, lines in done.kept.items():
        for line in lines:
            say(plain(f"{node}: {line}", 600))
    if done.database:
        say(plain(f"the database at {done.database} was not touched, and has all that the cluster knew: delete it "
                  "there, or begin the cluster again with it and the same token", 600))  # fmt: skip
    if done.bucket:
        say(plain(f"the snapshots of etcd in {done.bucket} were not touched, and hold the cluster's secrets: delete "
                  "them there once nobody needs them", 600))  # fmt: skip
    if done.untouched:
        say(plain(f"not active, so nothing was done to them: {', '.join(done.untouched)}", 600))


@cluster.command(name="remove-server")
@click.argument("name", metavar="CLUSTER")
@click.argument("node", metavar="NODE", shell_complete=node_names)
@click.option("--confirm", default="", metavar="TEXT", help="'remove NODE': the consent, off a terminal.")
@spec_options()
@signer_options
def remove_server(request: FleetRequest, signers: AllowedSigners, name: str, node: str, confirm: str) -> None:
    """Take the lost server NODE out of CLUSTER, so that another machine can join in its place.

    Its node object is deleted, and with it its member of etcd. The spec has to set the node aside, or have it no more.
    What is on its disk is of no use afterwards: it comes back only with a new image.
    """
    workspace = workspace_for(request)
    use_case.check_cluster(workspace, name)
    sentence = f"remove {node}"
    _check_consent(sentence, confirm)
    with workspace.ledger() as ledger:
        require_signed_spec(workspace, ledger, signers)
        found = use_case.find_lost_server(workspace, ledger, node)
        if found.member is not None:
            known = "its BMC says that it is off" if found.off else "nothing says that it is off: only you know"
            say(plain(f"{node} leaves {name} for good, and its member leaves etcd; {known}", 600), err=True)
            _consent(sentence, confirm)
        use_case.remove_lost_server(workspace, ledger, node)
    say(plain(f"{node} is out of {name}", 600))


def _tell(name: str, done: Restored) -> None:
    say(plain(f"{name} is restored from {done.path}; {done.server} serves", 600), err=True)
    for server, path in done.kept.items():
        say(plain(f"{server}: its old datastore is kept at {path}", 600), err=True)
    for server in done.held:
        say(plain(f"{server} is held: its disk may have the old datastore (`reconciler hold`)", 400), err=True)
    if done.strangers:
        say(plain(f"node objects of no node of the spec, as the snapshot had them: {', '.join(done.strangers)}", 600),
            err=True)  # fmt: skip
