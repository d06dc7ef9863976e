"""What the product costs: medians, and ratios of things taken in turn in one run. Nothing here fails on time."""
