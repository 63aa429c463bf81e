"""The conformance suite of a BMC: what the reconciler needs of Redfish, tried by the code that uses it.

    protocol   requests, login, errors, lists: DSP0266 itself
    readings   facts and abilities, as the driver reads them
    writes     changes that are put back, for which a person consents
    suite      one after another, over the driver's own session

Clauses are those of DSP0266 1.8.1; later versions keep the titles. Properties are those of the schema bundle, DSP8010.
"""

from reconciler.drivers.redfish.conformance.suite import WRITE_CHECKS, RedfishSuite, WriteConsent, all_checks

__all__ = ["WRITE_CHECKS", "RedfishSuite", "WriteConsent", "all_checks"]
