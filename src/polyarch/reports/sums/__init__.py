"""What verdicts add up to: shares, blockers, groups, money (RP-012 to RP-015)."""
