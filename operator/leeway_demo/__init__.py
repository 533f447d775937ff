"""The main job, shown: a profile whose default knobs miss its objectives, and that tunes itself until it meets them."""
