"""What stands between the sums that arrive and the strategy: promises of privacy, attacks, rules, the merging."""
