module polyarch.dev/bench/fixed_patch

go 1.22
