"""The parts that signals speak against: one module is one part, whichever source tells of it."""

from __future__ import annotations

from reconciler.health.placed_parts import faulty_parts, kinds_read, placed_parts
from reconciler.model.observed import AmdGpu, DimmErrors, DimmRecord, KernelEvent, Part
from reconciler.model.repairs import PlacedPart
from reconciler.model.vocab import Health, KernelEventKind
from tests import builders as b

SLOT = Part("dimm", "CPU1_DIMM_B1", Health.OK, "80CE01")


def test_records_of_rasdaemon_and_counts_of_edac_are_joined_to_the_slot_of_the_bmc_with_its_serial_number() -> None:
    record = DimmRecord("CPU1 DIMM B1", "0:1:0:-1", "Uncorrected", 0, this_boot=True, count=2)
    facts = b.facts(dimm_records=(record,), dimm_errors=(DimmErrors("mc0/dimm1", "cpu1-dimm-b1", 0, 2),))
    seen = b.observed(host=facts, inventory=b.inventory(parts=(SLOT,)))
    (found,) = faulty_parts(b.PROFILE, seen, {"health.ras_ue", "health.edac_ue"})
    assert found.part == PlacedPart("dimm", "CPU1_DIMM_B1", "80CE01")
    assert [why.partition(":")[0] for why in found.evidence] == ["edac_ue", "ras_ue"]


def test_a_gpu_of_amds_is_a_part_with_a_serial_number_by_its_counts_and_by_the_kernel_log() -> None:
    gpus = (AmdGpu(0, 0, 1, 0, "00000000:1B:00.0", "SN0"), AmdGpu(1, 0, 0, 0, "00000000:3D:00.0", "SN1"))
    events = (KernelEvent(KernelEventKind.AMD_BAD_PAGES, "00000000:3D:00.0", 1),)
    seen = b.observed(host=b.facts(gpus=(), amd_gpus=gpus, kernel_events=events))
    found = faulty_parts(b.PROFILE, seen, {"health.amd_ecc", "health.amd_bad_pages"})
    assert [(one.part, one.evidence[0].partition(":")[0]) for one in found] == [
        (PlacedPart("gpu", "00000000:1B:00.0", "SN0"), "amd_ecc"),
        (PlacedPart("gpu", "00000000:3D:00.0", "SN1"), "amd_bad_pages"),
    ]
    assert {part for part in placed_parts(seen) if part.kind == "gpu"} == {one.part for one in found}
    assert "gpu" in kinds_read(seen)
    assert "gpu" not in kinds_read(b.observed(host=b.facts(gpus=(), amd_gpus=None)))


def test_a_name_of_the_kernel_s_own_stays_a_place_without_a_serial_number() -> None:
    record = DimmRecord("CPU_SrcID#0_MC#0_Chan#1_DIMM#0", "0:1:0:-1", "Fatal", 0, this_boot=True, count=1)
    seen = b.observed(host=b.facts(dimm_records=(record,)), inventory=b.inventory(parts=(SLOT,)))
    (found,) = faulty_parts(b.PROFILE, seen, {"health.ras_ue"})
    assert found.part == PlacedPart("dimm", "CPU_SrcID#0_MC#0_Chan#1_DIMM#0")
    assert faulty_parts(b.PROFILE, seen, {"health.edac_ue"}) == (), "only what is shown counts"
