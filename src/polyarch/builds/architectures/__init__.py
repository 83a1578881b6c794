"""Which architectures a build is for, where each is built, and whether what it stands on exists for it. Pure."""
