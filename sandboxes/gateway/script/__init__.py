"""A model that plays a script (contracts.md, section 6), behind the gateway's own wire formats."""
