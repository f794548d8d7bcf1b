"""Speed against a bare PyTorch loop and against a peer, as ratios from one run on one machine."""
