"""The ledger: our runs, one file each, and the tables that set them beside published numbers."""

from anedl.ledger.entry import LedgerRun, read_ledger, record_run

__all__ = ["LedgerRun", "read_ledger", "record_run"]
