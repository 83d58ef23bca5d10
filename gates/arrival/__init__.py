"""G1, the arrival check: is what stands here what was ordered, healthy, wired right, and fast enough raw?"""
