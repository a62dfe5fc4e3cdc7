"""The background: sky, ground, and walls along the road."""

from __future__ import annotations

import numpy as np
from road_noise import Float64
from road_scene import Wall
from road_shapes import Mask, Shape
from road_view import NEAR, View


def paint_sky(view: View) -> None:
    """Paint sky, clouds, and hills or roofs far away."""
    recording, light = view.recording, view.recording.light
    rows = np.arange(view.height, dtype=np.float64)[:, None] + 0.5
    angle = (np.arange(view.width, dtype=np.float64)[None, :] + 0.5 - view.middle) / view.focal
    up = np.maximum((view.horizon - rows) / view.focal, 0.0)
    lift = np.minimum(up / 0.5, 1.0)[..., None]
    sky = np.array(light.sky_top) * lift + np.array(light.sky_low) * (1.0 - lift)
    cloud = recording.texture.rough(angle * 5.0 + 40.0, up * 14.0 + 9.0 + 0.0 * angle)
    cloud = np.clip((cloud - 0.5) * 4.0, 0.0, 1.0) * light.clouds
    sky = sky + (np.array([246.0, 246.0, 248.0]) - sky) * cloud[..., None]
    ridge = recording.texture.rough(angle * 6.0 + 3.0, np.full_like(angle, 77.5))
    high = (0.02 + recording.place.hills * (ridge - 0.15)) * view.focal
    hill = np.broadcast_to(view.horizon - rows < high, cloud.shape)
    tint = view.hazy(recording.leaves * 0.7, light.reach * 1.1)
    view.colours[:] = np.where(hill[..., None], tint, sky)


def paint_ground(view: View) -> None:
    """Paint road, marks, kerb, pavement and verge."""
    recording, place = view.recording, view.recording.place
    first = min(max(int(view.horizon) + 1, 0), view.height - 1)
    rows = np.arange(first, view.height, dtype=np.float64)[:, None] + 0.5
    ahead = np.minimum(
        view.focal * view.camera.height / np.maximum(rows - view.horizon, 0.2), 400.0
    )
    columns = np.arange(view.width, dtype=np.float64)[None, :] + 0.5
    x = (columns - view.middle) * ahead / view.focal + view.camera.x
    x = x - view.camera.bend * ahead * ahead
    z = np.broadcast_to(ahead + view.camera.z, x.shape)
    side, reach = np.abs(x), place.half + place.parking
    fade = 1.0 / (1.0 + (ahead / 16.0) * (ahead / 16.0))
    coarse = recording.texture.rough(x * 0.6 + 50.0, z * 0.35) - 0.5
    fine = recording.texture.at(x * 5.0, z * 2.5) - 0.5
    rough = (coarse * (0.35 + 0.65 * fade) * 60.0 + fine * fade * 44.0)[..., None]
    colours = np.where(
        (side < reach)[..., None], recording.asphalt + rough * 0.55, recording.verge + rough
    )
    paved = (side >= reach) & (side < reach + place.pavement)
    colours = np.where(paved[..., None], recording.pavement + rough * 0.5, colours)
    joint = paved & ((z * 0.7) % 1.0 < 0.06) & (ahead < 22.0)
    kerb = (side >= reach) & (side < reach + 0.16) & (place.pavement > 0)
    colours = np.where(joint[..., None], colours * 0.8, colours)
    colours = np.where(kerb[..., None], recording.pavement * 1.18, colours)
    worn = recording.texture.at(x * 2.0 + 9.0, z * 0.9) > 0.16
    colours = np.where(
        (_marked(view, side, z) & worn)[..., None],
        np.array([1.0, 0.985, 0.94]) * recording.marks,
        colours,
    )
    view.colours[first:] = view.hazy(colours, ahead)


def _marked(view: View, side: Float64, z: Float64) -> Mask:
    """Return the mask of white marks on the road."""
    place, dash = view.recording.place, view.recording.dash
    dashed = (z / dash) % 1.0 < 0.45
    marked = (side < 0.09) & (dashed | (len(place.lanes) > 1))
    if len(place.lanes) > 1:
        marked |= (np.abs(side - 3.6) < 0.09) & dashed
    return np.asarray(marked | (np.abs(side - place.half + 0.2) < 0.08))


def paint_wall(view: View, wall: Wall) -> None:
    """Paint a wall along the road, and its end that faces the camera."""
    near, far = wall.near - view.camera.z, wall.far - view.camera.z
    if far <= NEAR:
        return
    start = max(near, NEAR)
    if near > NEAR:
        outward = wall.x + (6.0 if wall.x > 0 else -6.0)
        left, right = sorted((view.column(wall.x, near), view.column(outward, near)))
        edges = (left, right, view.row(wall.height, near), view.row(0.0, near))
        piece = view.face(edges, _plain(view, wall, 0.8))
        view.paste(piece, near, -1)
    piece = view.along(wall.x, (start, far), (near, far), (0.0, wall.height), _front(view, wall))
    view.paste(piece, None, -1)


def _plain(view: View, wall: Wall, shade: float) -> Shape:
    def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        u, v = np.broadcast_arrays(u, v)
        rough = view.recording.texture.rough(u * 6.0 + wall.offset, v * wall.height) - 0.5
        return (wall.paint + rough[..., None] * 40.0) * shade, np.ones(u.shape, np.bool_)

    return shape


def _front(view: View, wall: Wall) -> Shape:
    """Return the front of a wall along the road: rough, with rows of windows or panels."""

    def shape(u: Float64, v: Float64) -> tuple[Float64, Mask]:
        u, v = np.broadcast_arrays(u, v)
        along, high = u * (wall.far - wall.near), (1.0 - v) * wall.height
        rough = view.recording.texture.rough(along * 0.8 + wall.offset, high * 0.8) - 0.5
        colours = wall.paint + rough[..., None] * 46.0
        wide, storey = wall.window
        if wide:
            a, b = (along / wide) % 1.0, (high / storey) % 1.0
            pane = (a > 0.25) & (a < 0.75) & (b > 0.3) & (b < 0.82)
            number = np.floor(along / wide) + np.floor(high / storey) * 31.0
            lit = view.recording.texture.at(number + wall.offset + 0.5, number * 0.0 + 3.5)
            panes = wall.trim * (0.5 + 1.1 * lit[..., None])
            colours = np.where(pane[..., None], panes, colours)
            colours = np.where((high < storey * 0.25)[..., None], colours * 0.72, colours)
        else:
            seam = (along * 0.9) % 1.0 < 0.07
            colours = np.where(seam[..., None], colours * 0.8, colours)
            stripe = (v > 0.1) & (v < 0.24)
            colours = np.where(stripe[..., None], wall.trim, colours)
        shade = 0.82 if wall.x > 0 else 1.0
        return colours * shade, np.ones(u.shape, np.bool_)

    return shape
