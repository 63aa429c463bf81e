"""Whatever code, tests and documents cite is there: sections of DESIGN, and IDs of PITFALLS.

`pytest tests/docs/test_citations.py --update` writes the last column of PITFALLS anew: the files that cite each ID, the
test that keeps it, or why none does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

DESIGN, PITFALLS = ROOT / ".github" / "DESIGN.md", ROOT / ".github" / "PITFALLS.md"
GROUPS = ("Pitfalls", "Conventions", "Acceptance")
ROW = re.compile(r"^\| ((?:rule )?[A-Z]?\d+(?:\.\d+)?) \| ([^|]+) \| ([^|]+) \|(?: ([^|\n]*) \|)?$", re.MULTILINE)

_ID = r"[A-Z]\d{1,2}(?:-[A-Z]?\d{1,2})?"
_LIST = rf"{_ID}(?:(?:, | and ){_ID})*"
_NUMBERS = r"\d+(?:\.\d+)?(?:(?:, | and )\d+(?:\.\d+)?)*"
_CITED = {
    "Conventions": (re.compile(rf"\b[Cc]onventions? ((?:[A-Z]\b, )?{_LIST})"),),
    "Pitfalls": (
        re.compile(rf"\b[Pp]itfalls?:? ({_LIST})"),
        re.compile(r"(?<![\w\])])\(((?:[A-N]\d{1,2})(?:, [A-N]\d{1,2})*)\)"),
        re.compile(r"(?:\"\"\"|# )([A-N]\d{1,2}(?:, [A-N]\d{1,2})*)[:.,;]"),
    ),
    "Acceptance": (
        re.compile(r"\b[Aa]cceptance ((?:rule )?\d+(?:\.\d+)?)"),
        re.compile(r"\b[Aa]cceptance section (\d+(?:\.\d+)?)"),
    ),
}
_DESIGN = re.compile(rf"\bDESIGN(?: sections?)? ({_NUMBERS})")
_INVARIANT = re.compile(rf"\b[Ii]nvariants? ({_NUMBERS})")

# Rules that no file cites by ID, and the test that keeps each.
KEPT = {
    ("Pitfalls", "C2"): "a_setting_that_does_not_hold_is_set_less_and_less_often",
    ("Pitfalls", "D3"): "boot_mode_is_restated_only_where_a_make_needs_it",
    ("Pitfalls", "D4"): "without_the_quirk_it_goes_wrong_and_with_it_well",
    ("Pitfalls", "D8"): "wherever_the_run_dies_the_next_one_installs_once",
    ("Pitfalls", "D10"): "another_task_on_the_bmc_is_not_disturbed",
    ("Pitfalls", "F2"): "two_fleets_never_have_one_bmc_at_once_and_a_lease_on_it_lives_with_that_on_the_fleet",
    ("Pitfalls", "F5"): "firmware_policies",
    ("Pitfalls", "F7"): "used_up_attempts_show_when_they_expire",
    ("Pitfalls", "F9"): "attempts_persist_so_the_next_run_does_not_begin_to_count_again",
    ("Pitfalls", "H4"): "foreign_cordon_is_kept",
    ("Pitfalls", "H5"): "a_drain_without_our_mark_is_refused",
    ("Pitfalls", "H6"): "another_pod_of_that_name_is_spared",
    ("Pitfalls", "H9"): "a_drain_by_command_ends_as_the_command_does",
    ("Pitfalls", "H11"): "both_must_be_out_before_a_node_counts_as_marked_and_both_in_before_it_serves",
    ("Pitfalls", "I2"): "an_attempt_that_is_needless_when_the_next_run_looks_is_closed",
    ("Pitfalls", "I5"): "a_machine_that_hangs_in_post_is_reported_in_bounded_time",
    ("Pitfalls", "I6"): "crash_anywhere_converges",
    ("Pitfalls", "I8"): "a_setting_that_does_not_hold_is_set_less_and_less_often",
    ("Pitfalls", "I10"): "a_setting_that_does_not_hold_is_set_less_and_less_often",
    ("Pitfalls", "I12"): "forget_never_touches",
    ("Pitfalls", "J1"): "the_brake_is_on_unless_the_spec_says_otherwise",
    ("Pitfalls", "J2"): "the_share_of_a_wave_is_rounded_up_and_the_rest_goes_last",
    ("Pitfalls", "J3"): "a_canary_that_fails_its_gate_halts_the_rollout_until_somebody_has_seen_to_it",
    ("Pitfalls", "J4"): "bringing_a_node_back_is_always_allowed",
    ("Pitfalls", "J5"): "a_rack_is_enough",
    ("Pitfalls", "J6"): "an_observer_outage_teaches_the_ledger_nothing",
    ("Pitfalls", "J7"): "pools_take_turns",
    ("Pitfalls", "J8"): "nothing_starts_outside_of_its_window_and_all_when_it_opens",
    ("Pitfalls", "J10"): "a_runner_that_lost_its_lease_stops_at_once",
    ("Pitfalls", "K2"): "it_is_cured_and_proved",
    ("Pitfalls", "K3"): "a_mode_that_waits_for_a_restart_gets_one",
    ("Pitfalls", "K9"): "problem",
    ("Pitfalls", "L5"): "an_image_without_key_or_signature_is_not_trusted",
    ("Pitfalls", "M1"): "the_digest_is_of_values_and_not_of_text",
    ("Pitfalls", "M2"): "an_invalid_spec_leaves_the_last_good_one_in_force_and_is_told_once",
    ("Pitfalls", "M3"): "an_expired_plan_and_one_of_another_fleet_are_not_done",
    ("Pitfalls", "M4"): "guards_refuse_what_goes_beyond_them",
    ("Pitfalls", "M7"): "a_runner_that_was_stopped_for_longer_than_its_lease_does_nothing_when_it_wakes",
    ("Pitfalls", "N1"): "what_a_pass_found",
    ("Pitfalls", "N2"): "an_audit_names_the_row_that_was_changed",
    ("Pitfalls", "N3"): "back_off",
    ("Pitfalls", "N4"): "what_is_under_way_is_acting_whatever_the_plan_says",
    ("Pitfalls", "N5"): "every_folder_gives_a_snapshot_or_a_reason",
    ("Conventions", "C1"): "help_lists_every_command",
    ("Conventions", "C3"): "apply_off_a_terminal_needs_a_plan_and_yes",
    ("Conventions", "C4"): "json_is_all_there_is_on_stdout",
    ("Conventions", "C5"): "documents_are_as_their_schemas_say",
    ("Conventions", "C6"): "show_gives_the_same_documents_from_their_files",
    ("Conventions", "C8"): "limit_includes_then_exclude_takes_away",
    ("Conventions", "C9"): "an_offline_plan_says_what_it_goes_by",
    ("Conventions", "C10"): "plan_is_deterministic",
    ("Conventions", "C12"): "off_a_terminal_everything_is_plain",
    ("Conventions", "C13"): "a_lease_excludes_others_and_names_its_holder",
    ("Conventions", "C14"): "an_interrupted_run_parks_reports_and_is_continued",
    ("Conventions", "E1"): "a_run_ends_with_the_strongest_of_what_happened",
    ("Conventions", "E2"): "a_report_that_could_not_be_posted_fails_the_job",
    ("Conventions", "E3"): "a_silent_node_alone_is_never_0_with_detailed_exitcode",
    ("Conventions", "P1"): "documents_are_canonical",
    ("Conventions", "P2"): "a_field_of_a_later_version_is_refused_and_not_ignored",
    ("Conventions", "P6"): "plan_converges",
    ("Conventions", "P7"): "a_node_that_needs_more_than_was_approved_is_skipped_and_others_go_on",
    ("Conventions", "P9"): "fingerprint_ignores_commit_and_time_but_not_actions",
    ("Conventions", "P10"): "no_secret_in_any_output",
    ("Conventions", "P11"): "an_incomplete_observation_is_4_whatever_else_was_found",
    ("Conventions", "P12"): "a_plan_is_done_once",
    ("Conventions", "D2"): "unknown_never_disrupts",
    ("Conventions", "D5"): "ignore_rules_same_in_drift_plan_apply",
    ("Conventions", "D7"): "identical_drift_is_one_row",
    ("Conventions", "D8"): "in_mode_observe_nothing_is_done",
    ("Conventions", "D9"): "a_setting_that_does_not_hold_is_set_less_and_less_often",
    ("Conventions", "R3"): "the_outcome_of_an_apply_is_posted_on_the_pull_request_and_never_edited",
    ("Conventions", "R5"): "report_fits_and_balances",
    ("Conventions", "R6"): "the_summary_of_the_job_is_written",
    ("Conventions", "R9"): "no_change_corrects_a_comment_and_makes_none",
    ("Conventions", "G3"): "code_and_endpoints_come_from_the_base_commit",
    ("Conventions", "G4"): "permissions_are_as_few_as_can_be",
    ("Conventions", "Y1"): "unknown_units_and_keys",
    ("Conventions", "Y2"): "every_key_and_value_has_a_position",
    ("Conventions", "Y3"): "what_is_refused",
    ("Conventions", "Y4"): "schemas_are_up_to_date",
    ("Conventions", "Y5"): "later_layers_override_earlier_ones",
    ("Conventions", "Y6"): "budget_never_exceeded",
    ("Conventions", "Y7"): "breaking_the_glass_opens_all_windows",
    ("Conventions", "Y8"): "a_change_goes_in_waves_and_a_failed_canary_halts_it",
    ("Conventions", "Y9"): "a_hold_outlives_its_line_in_the_spec_until_it_is_released",
    ("Conventions", "Y10"): "forgetting_too_many_is_refused",
    ("Conventions", "L2"): "the_status_of_a_node",
    ("Conventions", "L3"): "it_trips_when_too_many_go_bad_and_never_else",
    ("Conventions", "L4"): "a_node_that_fails_stays_out_and_holds_nobody_up",
    ("Conventions", "L5"): "a_hold_set_while_a_node_is_worked_on_stops_it_before_the_next_action",
    ("Conventions", "L6"): "own_mark_is_not_leaked",
    ("Acceptance", "rule 1"): "not_evidence_is_not_pass_of_a_fact",
    ("Acceptance", "rule 2"): "exit_status_and_document_must_agree",
    ("Acceptance", "rule 3"): "hardware_counts_are_exact",
    ("Acceptance", "rule 4"): "no_cell_is_made_up",
    ("Acceptance", "rule 5"): "banners_do_not_matter",
    ("Acceptance", "rule 6"): "a_command_that_ignores_its_deadline_is_killed",
    ("Acceptance", "rule 7"): "prefixes_of_a_version_end_at_a_dot",
    ("Acceptance", "1"): "failures_are_named",
    ("Acceptance", "1.1"): "each_gpu_must_pass_each_test",
    ("Acceptance", "2"): "a_lost_gpu_is_there_and_lost",
    ("Acceptance", "3"): "not_evidence_is_not_pass_of_the_kernel_log",
    ("Acceptance", "3.1"): "codes_agree_with_the_catalogue",
    ("Acceptance", "4.1"): "a_wrong_value_at_any_size_and_place_fails",
    ("Acceptance", "4.2"): "only_passed_is_a_pass",
    ("Acceptance", "4.3"): "gpu_burn_that_ends_with_0_and_faulty_gpus_fails",
    ("Acceptance", "4.5"): "iperf3_that_could_not_measure",
    ("Acceptance", "4.6"): "a_recording_that_something_happened_to_is_no_pass_that_was_none",
    ("Acceptance", "4.7"): "counters_that_went_back_or_are_not_there_are_no_pass",
    ("Acceptance", "6"): "check_trust",
    ("Acceptance", "8"): "every_truncation_is_noticed",
    ("Acceptance", "9"): "every_recording_yields_a_verdict",
}

# Rules that this version does not keep: "not yet" where the project means to, "not ours" where somebody else has to.
NOT_KEPT = {
    (
        "Pitfalls",
        "C6",
    ): "not ours: a spec names nodes; power shelves and switches are switched on by whoever runs the site",
    ("Pitfalls", "D6"): "not yet: the boot order is written over Redfish and read back on Lenovo as on other makes",
    ("Pitfalls", "E6"): "not yet: budgets bound how many nodes are installed at once; streams and bytes have no limit",
    ("Pitfalls", "F6"): "not yet: the plan names a BMC that offers no update; a missing licence is told by its refusal",
    ("Pitfalls", "G4"): "not yet: lockdown is neither read nor lifted; a BMC that refuses a setting is reported",
    ("Pitfalls", "H2"): "not yet: at most 32 requests at once go to a cluster; evictions have no rate of their own",
    (
        "Pitfalls",
        "K7",
    ): "not yet: a budget may count an NVLink domain, but a repair takes no account of the node's peers",
    ("Pitfalls", "K8"): "not yet: no node is compared with its cohort",
    ("Pitfalls", "L3"): "not yet: no action erases a drive",
    ("Conventions", "R10"): "not yet: a comment mentions nobody, whatever it reports",
    (
        "Acceptance",
        "rule 8",
    ): "not yet: thresholds are data, by tool, arguments and version; the hardware they are for is not named",
    ("Acceptance", "5"): "not ours: no threshold is shipped; those of a spec are its author's",
}


class Citation(NamedTuple):
    """A document's ID, and the file that cites it."""

    group: str
    id: str
    file: str


@cache
def sources() -> dict[str, str]:
    """All that may cite, but for the documents that define the IDs."""
    found = [
        *(
            path
            for folder in ("reconciler", "tests")
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".yaml")
        ),
        *(ROOT / "docs").rglob("*.md"),
        *(path for path in (ROOT / ".github").rglob("*.md") if path != PITFALLS),
        ROOT / "README.md",
        ROOT / "pyproject.toml",
    ]
    own = Path(__file__)
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(found) if path != own}


def spread(cited: str) -> Iterator[str]:
    """E2-E4 is E2, E3 and E4."""
    for first, last in re.findall(r"((?:rule )?[A-Z]?\d+(?:\.\d+)?)(?:-[A-Z]?(\d+))?", cited):
        if not last:
            yield first
            continue
        letter, number = re.match(r"([A-Z]?)(\d+)", first).groups()  # type: ignore[union-attr]  # _LIST matched it
        yield from (f"{letter}{at}" for at in range(int(number), int(last) + 1))


def citations_of(file: str, text: str) -> Iterator[Citation]:
    for group, patterns in _CITED.items():
        for pattern in patterns:
            for match in pattern.finditer(text):
                yield from (Citation(group, one, file) for one in spread(match[1]))
            text = pattern.sub("", text)  # an ID of conventions is not one of pitfalls too


@cache
def citations() -> list[Citation]:
    return sorted({one for file, text in sources().items() for one in citations_of(file, text)})


def sections(text: str) -> dict[str, str]:
    return {group: text.partition(f"\n## {group}\n")[2].partition("\n## ")[0] for group in GROUPS}


def rows(text: str) -> dict[tuple[str, str], str]:
    """(group, ID) -> who keeps it."""
    return {
        (group, id_): (kept or "").strip()
        for group, section in sections(text).items()
        for id_, _, _, kept in ROW.findall(section)
    }


def written(text: str) -> str:
    """PITFALLS with its last column as the citations are now: code first, then tests."""
    kept: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in citations():
        if one.file.startswith(("reconciler/", "tests/")):
            kept[one.group, one.id].append(f"`{one.file}`")
    for rule, test in KEPT.items():
        kept[rule] += [f"`{file}`: {test}" for file, source in sources().items() if f"def test_{test}(" in source]
    for rule, reason in NOT_KEPT.items():
        kept[rule].append(reason)
    for group, section in sections(text).items():

        def anew(row: re.Match[str], group: str = group) -> str:
            return f"| {row[1]} | {row[2]} | {row[3]} | {', '.join(kept[group, row[1]])} |"

        text = text.replace(section, ROW.sub(anew, section))
    return text


def test_every_id_that_is_cited_is_in_pitfalls() -> None:
    known = rows(PITFALLS.read_text())
    assert {one for one in citations() if (one.group, one.id) not in known} == set()


def test_pitfalls_name_who_keeps_each_rule(pytestconfig: pytest.Config) -> None:
    """As the citations are: a rule that code cites names its module or test, and no file that is gone is named."""
    text = PITFALLS.read_text()
    if pytestconfig.getoption("--update"):
        PITFALLS.write_text(written(text))
        return
    wanted = rows(written(text))
    changed = {row: (kept, wanted[row]) for row, kept in rows(text).items() if kept != wanted[row]}
    assert changed == {}, "run: pytest tests/docs/test_citations.py --update"


def test_every_rule_that_is_kept_without_a_citation_names_its_test() -> None:
    tests = "\n".join(text for file, text in sources().items() if file.startswith("tests/"))
    assert {rule: test for rule, test in KEPT.items() if f"def test_{test}(" not in tests} == {}
    assert set(KEPT) <= set(rows(PITFALLS.read_text()))


def test_every_rule_names_its_test_or_says_why_it_has_none() -> None:
    found = rows(written(PITFALLS.read_text()))
    assert [rule for rule, kept in found.items() if "`tests/" not in kept and rule not in NOT_KEPT] == []
    assert set(NOT_KEPT) <= set(found) - set(KEPT)
    assert all(reason.startswith(("not yet: ", "not ours: ")) for reason in NOT_KEPT.values())


def test_every_section_of_the_design_that_is_cited_is_there() -> None:
    text = DESIGN.read_text()
    known = set(re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE))
    assert {str(number) for number in range(1, 15)} <= known
    cited = {
        (number, file)
        for file, source in sources().items()
        for found in _DESIGN.findall(source)
        for number in spread(found)
    }
    assert len(cited) > 50
    assert {one for one in cited if one[0] not in known} == set()


def test_every_invariant_that_is_cited_is_there_and_has_its_test() -> None:
    table = DESIGN.read_text().partition("\n## 13. ")[2].partition("\n## ")[0]
    known = dict(re.findall(r"^\| (\d+) \| ([\w, ]+?) \| [^|]*\|$", table, re.MULTILINE))
    unbuilt = set(re.findall(r"^\| (\d+) \| [\w, ]+ \| not built yet[^|]*\|$", table, re.MULTILINE))
    cited = {
        number for source in sources().values() for found in _INVARIANT.findall(source) for number in spread(found)
    }
    assert cited <= set(known)
    assert [number for number in cited if number in unbuilt] == []
    tests = "\n".join(text for file, text in sources().items() if file.startswith("tests/"))
    for number, names in known.items():
        if number not in unbuilt:
            assert all(f"def test_{name}" in tests for name in names.split(", ")), (number, names)


def test_citations_are_read() -> None:
    text = '"""Power (pitfalls A9, I1).\n"""\n# A7: on\n# B2 is a GPU\nalltoall(H20)\n'
    text += "# pitfalls E2-E4, conventions R1, acceptance 4.1"
    found = {(one.group, one.id) for one in citations_of("x.py", text)}
    assert found == {
        ("Conventions", "R1"), ("Acceptance", "4.1"),
        *(("Pitfalls", one) for one in ("A9", "I1", "A7", "E2", "E3", "E4")),
    }  # fmt: skip
