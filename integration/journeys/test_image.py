"""The image of the Dockerfile, built by buildah a second time: the same bytes come of the same lock files."""

from __future__ import annotations

import shutil
from pathlib import Path

from integration.rigging import bridge_image
from integration.rigging.bridge_image import ROOT, SOURCES

VERSION = "0.1.0"


def test_a_build_without_a_cache_from_another_checkout_makes_the_same_layers(tmp_path: Path) -> None:
    """buildah writes the ids of its working containers into the configuration; they are no part of what runs."""
    checkout = tmp_path / "elsewhere"
    checkout.mkdir()
    for source in SOURCES:
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copyfile
        copy(ROOT / source, checkout / source)
    for file in checkout.rglob("*"):
        file.chmod(0o700 if file.is_dir() else 0o600)
    bridge_image.build_again(VERSION, checkout, tmp_path / "again.tar")
    first, again = (bridge_image.configuration(each) for each in (bridge_image.build(VERSION), tmp_path / "again.tar"))
    assert len(first["rootfs"]["diff_ids"]) > 2
    assert first["rootfs"] == again["rootfs"]
    what_runs = [{**each, "config": {**each["config"], "Image": "", "Hostname": ""}} for each in (first, again)]
    for key in ("architecture", "os", "created", "config"):
        assert what_runs[0][key] == what_runs[1][key]
    assert what_runs[0]["config"]["Entrypoint"] == ["slurm-bridge"]
