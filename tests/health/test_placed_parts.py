"""The parts that signals speak against: one module is one part, whichever source tells of it."""

from __future__ import annotations

from reconciler.health.placed_parts import faulty_parts
from reconciler.model.observed import DimmErrors, DimmRecord, Part
from reconciler.model.repairs import PlacedPart
from reconciler.model.vocab import Health
from tests import builders as b

SLOT = Part("dimm", "CPU1_DIMM_B1", Health.OK, "80CE01")


def test_records_of_rasdaemon_and_counts_of_edac_are_joined_to_the_slot_of_the_bmc_with_its_serial_number() -> None:
    record = DimmRecord("CPU1 DIMM B1", "0:1:0:-1", "Uncorrected", 0, this_boot=True, count=2)
    facts = b.facts(dimm_records=(record,), dimm_errors=(DimmErrors("mc0/dimm1", "cpu1-dimm-b1", 0, 2),))
    seen = b.observed(host=facts, inventory=b.inventory(parts=(SLOT,)))
    (found,) = faulty_parts(b.PROFILE, seen, {"health.ras_ue", "health.edac_ue"})
    assert found.part == PlacedPart("dimm", "CPU1_DIMM_B1", "80CE01")
    assert [why.partition(":")[0] for why in found.evidence] == ["edac_ue", "ras_ue"]


def test_a_name_of_the_kernel_s_own_stays_a_place_without_a_serial_number() -> None:
    record = DimmRecord("CPU_SrcID#0_MC#0_Chan#1_DIMM#0", "0:1:0:-1", "Fatal", 0, this_boot=True, count=1)
    seen = b.observed(host=b.facts(dimm_records=(record,)), inventory=b.inventory(parts=(SLOT,)))
    (found,) = faulty_parts(b.PROFILE, seen, {"health.ras_ue"})
    assert found.part == PlacedPart("dimm", "CPU_SrcID#0_MC#0_Chan#1_DIMM#0")
    assert faulty_parts(b.PROFILE, seen, {"health.edac_ue"}) == (), "only what is shown counts"
